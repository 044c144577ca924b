"""Git as a process: the environment that it gets, its time limit, and its end with all that it started.

Knows nothing of budgets, and leaves the environment of this process as it is. Its rules:

- Variables named ``GIT_*`` (git sets them in hooks) do not reach it, but for those that say how to log in.
- No hook runs, nobody is asked for a password, and only known protocols are spoken.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from gpubudget.errors import GpuBudgetError
from gpubudget.gitops.source import PROTOCOLS, without_secrets

GRACE = 5.0

_KEEP = "nothing is applied; the daemon keeps what it has"
_LOGIN = ("GIT_SSH_COMMAND", "GIT_ASKPASS", "GIT_SSL_CAINFO", "GIT_SSL_CAPATH", "GIT_SSL_CERT", "GIT_SSL_KEY")
_CONFIG = {
    "core.hooksPath": os.devnull,
    "gc.autoDetach": "false",  # nothing of git outlives the command that started it
    "maintenance.autoDetach": "false",
    "safe.bareRepository": "all",  # the one that was named is meant
    "transfer.fsckObjects": "true",
}


class RepositoryError(GpuBudgetError):
    """The repository cannot be read as asked: it, the ref, the folder or an object of it is missing or broken."""

    slug = "repository"

    def __init__(self, message: str, *, hint: str = _KEEP) -> None:
        super().__init__(message, hint=hint)


def environment(place: Path) -> dict[str, str]:
    """The variables with which git reads the repository at ``place`` and no other."""
    given = {name: value for name, value in os.environ.items() if name.startswith("GIT_")}
    variables = {
        **{name: value for name, value in os.environ.items() if name not in given},
        "GIT_ASKPASS": "",
        **{name: given[name] for name in _LOGIN if name in given},
        "GIT_SSH_COMMAND": f"{given.get('GIT_SSH_COMMAND', 'ssh')} -oBatchMode=yes",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_ALLOW_PROTOCOL": ":".join(PROTOCOLS),
        "GIT_NO_REPLACE_OBJECTS": "1",
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_GRAFT_FILE": os.devnull,
        "GIT_CEILING_DIRECTORIES": str(place.resolve().parent),  # never a repository further up
        "LANGUAGE": "C",
        "LC_ALL": "C",
    }
    return configured(variables, _CONFIG)


def configured(variables: Mapping[str, str], settings: Mapping[str, str]) -> dict[str, str]:
    """The variables with further settings of git's in them, which go before those of every file."""
    first = int(variables.get("GIT_CONFIG_COUNT", "0"))
    found = {**variables, "GIT_CONFIG_COUNT": str(first + len(settings))}
    for number, (key, value) in enumerate(settings.items(), start=first):
        found |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    return found


def run(
    arguments: Sequence[str], env: Mapping[str, str], *, folder: Path | None = None, shown: str, timeout: float
) -> subprocess.CompletedProcess[str]:
    """A finished git command and what it printed, as text; see ``run_bytes``."""
    done = run_bytes(arguments, env, folder=folder, shown=shown, timeout=timeout)
    said = (done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace"))
    return subprocess.CompletedProcess(arguments, done.returncode, *said)


def run_bytes(
    arguments: Sequence[str],
    env: Mapping[str, str],
    *,
    folder: Path | None = None,
    shown: str,
    timeout: float,
    stdin: bytes = b"",
) -> subprocess.CompletedProcess[bytes]:
    """A finished git command. It and whatever it started is ended at the time limit, and if we are interrupted."""
    child = _Child(["git", *arguments], stdin, {"cwd": folder, "env": env})
    try:
        process = child.started(shown)
        out, err = process.communicate(stdin or None, timeout=timeout)
    except BaseException as error:
        child.end()
        if isinstance(error, subprocess.TimeoutExpired):
            hint = "see whether the place answers, or give a longer --timeout"
            raise RepositoryError(f"git {arguments[0]} on {shown} took longer than {timeout:g} s", hint=hint) from None
        raise
    return subprocess.CompletedProcess(arguments, process.returncode, out, err)


class _Child(threading.Thread):
    """A process that cannot be lost: it is started in a thread of its own, where no signal's exception is raised.

    It is not joined: a join that a signal's exception interrupts takes the thread for ended (Python 3.11).
    """

    def __init__(self, command: list[str], stdin: bytes, options: dict[str, Any]) -> None:
        super().__init__()
        self.process: subprocess.Popen[bytes] | None = None
        self._done = threading.Event()
        self._error: OSError | None = None
        self._command, self._options = command, options
        self._stdin = subprocess.PIPE if stdin else subprocess.DEVNULL

    def run(self) -> None:
        """Start it."""
        pipe = subprocess.PIPE
        try:
            self.process = subprocess.Popen(
                self._command, stdin=self._stdin, stdout=pipe, stderr=pipe, start_new_session=True, **self._options
            )
        except OSError as error:
            self._error = error
        finally:
            self._done.set()

    def started(self, shown: str) -> subprocess.Popen[bytes]:
        """Have it started; the process, which reads or writes at ``shown``."""
        self.start()
        self._done.wait()
        if self.process is not None:
            return self.process
        if isinstance(self._error, FileNotFoundError) and self._error.filename == self._command[0]:
            raise not_installed() from self._error
        raise RepositoryError(f"cannot run git in {shown}: {self._error and self._error.strerror}") from self._error

    def end(self) -> None:
        """End it if it was started, with all that it started."""
        self._done.wait(GRACE)  # not for ever: the thread itself may not have been started
        if self.process is not None:
            _end(self.process)


def not_installed() -> RepositoryError:
    """What is said where there is no git."""
    return RepositoryError("git is not installed, or not on the PATH", hint="install git")


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ends a process group: first so that git can remove its own locks and unfinished files, then for good."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    with suppress(subprocess.TimeoutExpired):
        process.communicate(timeout=GRACE)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def reason(said: str) -> str:
    """One line of what git said: the first that is neither empty nor a warning."""
    lines = [line.strip() for line in without_secrets(said).splitlines()]
    told = [line for line in lines if line and not line.startswith(("warning:", "hint:"))]
    return printable(told[0].removeprefix("fatal: ").removeprefix("error: ")) if told else "git does not say why"


def printable(text: str, longest: int = 500) -> str:
    """A text of git's, such as a name, as a message may show it."""
    shown = text if text.isprintable() else ascii(text)[1:-1]
    return shown if len(shown) <= longest else shown[:longest] + "..."
