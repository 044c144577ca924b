"""The workload of the demo, as a real process: it saves what it has done, and goes on from there."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from gpubudget.cli import demo_workload
from tests.cli.cluster import until


def train(folder: Path, steps: int) -> subprocess.Popen[str]:
    environment = {**os.environ, "GPUBUDGET_CHECKPOINT_DIR": str(folder)}
    command = [sys.executable, demo_workload.__file__, str(steps)]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)


def test_it_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    """Stopped by SIGTERM it saves its step and reports a checkpoint; started again it goes on from that very step."""
    with train(tmp_path, 10_000) as first:
        until((tmp_path / ".checkpointed").exists, "the first checkpoint")
        first.send_signal(signal.SIGTERM)
        said = first.communicate(timeout=10)[0]
    step = int((tmp_path / "step").read_text())
    assert said == f"begins at step 0\nasked to stop: saved step {step}\n"
    assert (first.returncode, step >= 10) == (-signal.SIGTERM, True)
    with train(tmp_path, step + 1) as second:
        assert second.communicate(timeout=10)[0] == f"goes on from step {step}\ndone after {step + 1} steps\n"
    assert second.returncode == 0
