"""How quickly the command line starts: ``gpubudget version`` and ``gpubudget submit --help``, as whole processes."""

import subprocess
import sys
import time
from pathlib import Path

GPUBUDGET = Path(sys.executable).parent / "gpubudget"
RUNS = 20
BAR_MS = 150


def milliseconds(*arguments: str) -> list[float]:
    """The wall-clock time of each of the runs, sorted."""
    times = []
    for _ in range(RUNS):
        started = time.perf_counter()
        subprocess.run([GPUBUDGET, *arguments], check=True, stdout=subprocess.DEVNULL)
        times.append((time.perf_counter() - started) * 1000)
    return sorted(times)


if __name__ == "__main__":
    for words, bar in ((("version",), f"  (bar: {BAR_MS} ms)"), (("submit", "--help"), "")):
        times = milliseconds(*words)
        print(f"gpubudget {' '.join(words)}: best {times[0]:.0f} ms, median {times[RUNS // 2]:.0f} ms{bar}")
