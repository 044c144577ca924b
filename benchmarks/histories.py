"""The long run of the property tests: thousands of random histories, each checked after every event.

    python benchmarks/histories.py --count 2000 --events 200

Prints progress, the seeds that failed (``--first SEED --count 1`` plays one of them again, with its traceback) and
what was played; exit code 1 if any failed.
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.core.histories import play


def attempt(seed: int, events: int) -> tuple[int, int, int, str]:
    """The seed, how many events and decisions there were, and the traceback if it failed."""
    try:
        history = play(seed, events)
    except Exception:  # noqa: BLE001 - whatever it is, it is reported with its seed
        return seed, 0, 0, traceback.format_exc(limit=-4)
    return seed, len(history.inputs), sum(map(len, history.decisions)), ""


def main() -> int:
    parser = argparse.ArgumentParser(description="Play random histories and check every invariant after every event.")
    parser.add_argument("--count", type=int, default=2_000, help="how many histories (default 2000)")
    parser.add_argument("--events", type=int, default=200, help="at least so many events in each (default 200)")
    parser.add_argument("--first", type=int, default=0, help="the first seed (default 0)")
    parser.add_argument("--processes", type=int, default=2, help="how many at once (default 2)")
    options = parser.parse_args()
    begun, failed, events, decisions = time.monotonic(), [], 0, 0
    with ProcessPoolExecutor(options.processes) as pool:
        seeds = range(options.first, options.first + options.count)
        for done, future in enumerate(
            as_completed(pool.submit(attempt, seed, options.events) for seed in seeds), start=1
        ):
            seed, played, decided, trace = future.result()
            events, decisions = events + played, decisions + decided
            if trace:
                failed.append(seed)
                print(f"\nseed {seed} failed:\n{trace}", flush=True)
            if sys.stderr.isatty() or done % 100 == 0:
                end = "\r" if sys.stderr.isatty() else "\n"
                print(
                    f"{done} of {options.count} histories, {len(failed)} failed", end=end, file=sys.stderr, flush=True
                )
    took = time.monotonic() - begun
    print(f"{options.count} histories, {events} events, {decisions} decisions in {took:.0f} s; {len(failed)} failed")
    if failed:
        print("seeds:", *sorted(failed))
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
