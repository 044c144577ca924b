"""Repair: the configured steps on an empty host, once for each token, and then all health checks again.

It knows nothing of when a host is to be repaired. What it does is on record before it does it, so that a token that
was begun is never begun again; a repair that the agent's end interrupted has failed.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import requests

from gpubudget.agent import supervise
from gpubudget.agent.commands import Commands, Result
from gpubudget.agent.config import Step
from gpubudget.agent.gpus import Gpus
from gpubudget.agent.health import Monitor
from gpubudget.agent.leftovers import kill_marked
from gpubudget.agent.supervise import read_json, write_json
from gpubudget.agent.wire import sayable

logger = logging.getLogger(__name__)

RECORD = "repair.json"


@dataclass(frozen=True, slots=True)
class Status:
    """How the repair of a token stands: ``running``, ``done`` or ``failed``."""

    token: str
    state: str
    step: str = ""
    message: str = ""


class Repairer:
    """The last repair of this host. ``changed`` is called when there is something new to report."""

    def __init__(
        self, steps: tuple[Step, ...], host: dict[str, str], folder: Path, gpus: Gpus, monitor: Monitor,
        commands: Commands, changed: Callable[[], None],
    ) -> None:  # fmt: skip
        self._steps, self._host, self._folder = steps, host, folder
        self._gpus, self._monitor, self._commands, self._changed = gpus, monitor, commands, changed
        said = read_json(self._folder, RECORD)
        self._status = Status(**said) if said else None
        if self._status and self._status.state == "running":
            kill_marked(folder / RECORD)
            self._status = replace(self._status, state="failed", message="the agent ended during this step")
            with contextlib.suppress(OSError):  # the next start comes to the same end
                self._say(self._status)

    def report(self) -> dict[str, str] | None:
        """What the daemon is told."""
        status = self._status
        if status is None:
            return None
        said = {"token": status.token, "state": status.state, "step": status.step}
        return {**said, "message": sayable(status.message)}

    def begin(self, token: str) -> None:
        """Run the steps, unless this token was begun before or another one is at it."""
        if self._status and (self._status.token == token or self._status.state == "running"):
            return
        status = Status(token, "running")
        try:
            self._say(status)
        except OSError as problem:
            self._status = replace(status, state="failed", message=f"it cannot be put on record: {problem.strerror}")
            return
        threading.Thread(target=self._work, args=(status,), name="repair", daemon=True).start()

    def _work(self, status: Status) -> None:
        try:
            status = self._run_steps(status)
        except Exception as problem:  # a fault here must not leave the host in repair for ever
            logger.exception("the repair broke off")
            status = replace(status, state="failed", message=f"the repair broke off: {problem}")
        with contextlib.suppress(OSError):
            self._say(status)
        self._status = status
        self._changed()

    def _run_steps(self, status: Status) -> Status:
        failing = self._monitor.failing()
        self._monitor.pause(paused=True)
        self._gpus.release()
        try:
            for step in self._steps:
                status = replace(status, step=step.name)
                self._say(status)
                self._changed()
                result = self._post(step, status, failing) if step.url else self._run(step, status, failing)
                logger.info("repair step %s: %s", step.name, result)
                if not result.ok:
                    return replace(status, state="failed", message=result.message)
        finally:
            self._monitor.pause(paused=False)
        status = replace(status, step="health checks")
        self._say(status)
        wrong = self._monitor.check_all()
        message = "; ".join(wrong) if wrong else "all health checks pass"
        return replace(status, state="failed" if wrong else "done", message=message)

    def _run(self, step: Step, status: Status, failing: list[dict[str, object]]) -> Result:
        variables = {f"GPUBUDGET_{name.upper()}": value for name, value in self._host.items()}
        variables |= {"GPUBUDGET_REPAIR_TOKEN": status.token, "GPUBUDGET_REPAIR_STEP": step.name}
        variables["GPUBUDGET_FAILED_CHECKS"] = ",".join(str(one["name"]) for one in failing)
        variables[supervise.MARK] = str(self._folder / RECORD)  # a step that outlives the agent is found by it
        return self._commands.run(step.command, step.timeout, variables)

    def _post(self, step: Step, status: Status, failing: list[dict[str, object]]) -> Result:
        body = {**self._host, "token": status.token, "step": step.name, "failed_checks": failing}
        try:
            with requests.post(
                step.url, json=body, headers=step.headers, timeout=step.timeout / 1000, stream=True
            ) as answer:
                return Result(answer.ok, f"{step.url} answered {answer.status_code} {answer.reason}")
        except (requests.RequestException, ValueError) as problem:
            return Result(ok=False, message=f"{step.url} cannot be reached: {problem}"[:300])

    def _say(self, status: Status) -> None:
        """Put on record how things stand; raises OSError if that cannot be done."""
        write_json(self._folder, RECORD, asdict(status))
        self._status = status
