"""The workload of the demo, a stand-in for training: it counts steps, saves as it goes, and goes on from what it saved.

It is copied into the demo's folder as ``train.py`` and run there with the number of steps, ten a second. Of gpubudget
it knows two things only: where its checkpoints belong, and that touching ``.checkpointed`` there reports one.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path

STEP = 0.1
SAVE_EVERY = 10

BEGINS = "begins at step 0"
GOES_ON = "goes on from step"
SAVED = "asked to stop: saved step"


def train(steps: int, folder: Path, stop: threading.Event) -> bool:
    """Count up to ``steps`` from what ``folder`` holds; False if asked to stop before."""
    saved = folder / "step"
    step = int(saved.read_text(encoding="ascii")) if saved.exists() else 0
    print(f"{GOES_ON} {step}" if step else BEGINS, flush=True)  # noqa: T201 - its output is its log
    while step < steps:
        if stop.wait(STEP):
            save(saved, step)
            print(f"{SAVED} {step}", flush=True)  # noqa: T201 - the same
            return False
        step += 1
        if step % SAVE_EVERY == 0:
            save(saved, step)
    print(f"done after {step} steps", flush=True)  # noqa: T201 - the same
    return True


def save(saved: Path, step: int) -> None:
    """Keep the step, as a whole or not at all, and report that there is a checkpoint."""
    draft = saved.with_suffix(".new")
    draft.write_text(str(step), encoding="ascii")
    draft.replace(saved)
    (saved.parent / ".checkpointed").touch()


if __name__ == "__main__":
    asked = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: asked.set())
    if not train(int(sys.argv[1]), Path(os.environ["GPUBUDGET_CHECKPOINT_DIR"]), asked):
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTERM)
