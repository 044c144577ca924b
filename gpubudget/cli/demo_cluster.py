"""The demo's own cluster: a temporary folder, a budgets repository, a daemon and three agents as real processes.

All of it is in one folder and on 127.0.0.1. However the demo ends, ``remove`` leaves nothing behind: no process, no
workload, no file. The settings, git configuration and home folder of whoever runs it are neither used nor changed.
"""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from importlib import resources
from pathlib import Path
from typing import TypeVar

import psutil

from gpubudget.cli import demo_workload
from gpubudget.cli.client import Client
from gpubudget.errors import GpuBudgetError

T = TypeVar("T")

POOL, GPUS = "h100", 8
HOSTS = ("h1", "h2", "h3")
PEOPLE = ("alice", "emil", "farah", "goran", "ivan", "noor", "olga", "selma")
END_SECONDS = 8.0
"""How long each process may take to end before it is killed; a workload's grace period is 2 s."""
LOOK_SECONDS = 0.1

CLUSTER = """\
# A small cluster with short times, so that a demo of a minute shows what takes days elsewhere.
kind: Cluster
name: demo
pools:
  h100: {hosts: 3, gpus_per_host: 8}
policy:
  lookback: 10m
  max_min_runtime: 2m
  rebalance_interval: 1s
  grace_period: 2s
"""
AGENT = """\
min_free_mb: 0
repair:
  - name: reset-gpus          # here a GPU is ill because a file says so
    command: [rm, -f, {sick}]
"""
END = """\
#!/bin/sh
# Ends the demo that was kept: its agents with their workloads, its daemon, and this folder.
folder={folder}
ours() {{ tr '\\0' '\\n' 2>/dev/null < /proc/$1/cmdline | grep -qF "$folder/"; }}
end() {{
  for pid; do ours $pid && kill $pid; done
  for pid; do n=0; while ours $pid && [ $n -lt 100 ]; do sleep 0.1; n=$((n + 1)); done; done
}}
end {agents}
end {daemon}
cd / && rm -rf "$folder"
echo "the demo has ended, and all of it is removed"
"""


class DemoError(GpuBudgetError):
    """The demo could not go on."""


def until(condition: Callable[[], T], what: str, seconds: float) -> T:
    """The first true value of a condition; DemoError when it does not come in time."""
    end = time.monotonic() + seconds
    while not (value := condition()):
        if time.monotonic() > end:
            raise DemoError(
                f"waited {seconds:.0f} s for {what}, and it did not happen",
                hint="is this machine very busy? run it again, with --keep to look into it",
            )
        time.sleep(LOOK_SECONDS)
    return value


class Cluster:
    """One demo's folder and processes."""

    def __init__(self) -> None:
        _refuse_namesakes()
        try:
            self.folder = Path(tempfile.mkdtemp(prefix="gpubudget-demo-")).resolve()
        except OSError as error:
            why = f"the demo's temporary folder cannot be made: {error.strerror}"
            raise DemoError(why, hint="set TMPDIR to a writable folder") from error
        self.url = ""
        self.agents: list[subprocess.Popen[bytes]] = []
        self.daemon: subprocess.Popen[bytes] | None = None
        self._clients: dict[str, Client] = {}

    # Places

    @property
    def repository(self) -> Path:
        """The budgets repository, with its work tree."""
        return self.folder / "lab"

    @property
    def train(self) -> Path:
        """The program that the workloads run."""
        return self.folder / "train.py"

    def token_file(self, name: str) -> Path:
        """Where the token of a person or program is."""
        return self.folder / "tokens" / name

    def sick_file(self, host: str) -> Path:
        """The file that makes a host's simulated GPUs ill."""
        return self.folder / "hosts" / host / "simulated-gpus.json"

    # Git

    def make_repository(self) -> str:
        """A repository with the example tree for this cluster, committed; the commit's id."""
        budgets = self.repository / "budgets"
        with resources.as_file(resources.files("gpubudget") / "example") as example:
            shutil.copytree(example, budgets)
        (budgets / "cluster.yaml").write_text(CLUSTER, encoding="utf-8")
        self.git("init", "--quiet", "--initial-branch=main")
        return self.commit("The lab's budgets")

    def commit(self, message: str) -> str:
        """Commit what the work tree has, as ines, who manages the root; the commit's id."""
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message", message)
        return self.git("rev-parse", "HEAD")

    def git(self, *arguments: str) -> str:
        """What a git command in the repository prints; it knows no configuration but this."""
        self.repository.mkdir(exist_ok=True)
        environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")} | {
            "HOME": str(self.folder), "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_AUTHOR_NAME": "Ines", "GIT_AUTHOR_EMAIL": "ines@example.org",
            "GIT_COMMITTER_NAME": "Ines", "GIT_COMMITTER_EMAIL": "ines@example.org",
        }  # fmt: skip
        try:
            done = subprocess.run(
                ["git", "-C", self.repository, *arguments],  # noqa: S607 - the user's own git
                env=environment, check=False, capture_output=True, text=True, timeout=30,
            )  # fmt: skip
        except (OSError, subprocess.TimeoutExpired) as error:
            why = error.strerror if isinstance(error, OSError) else str(error)
            raise DemoError(f"git cannot be run: {why}", hint="install git") from error
        if done.returncode:
            raise DemoError(f"git {arguments[0]} failed: {' '.join(done.stderr.split())}")
        return done.stdout.strip()

    # Processes

    def serve(self) -> None:
        """Start the daemon on a free port, and learn its URL and the administrator's token."""
        for name in ("tokens", "logs", "hosts", "shared"):
            (self.folder / name).mkdir()
        shutil.copyfile(demo_workload.__file__, self.train)
        admin = self.token_file("admin")
        self.daemon = self._start(
            "daemon", "serve", "--db", self.folder / "daemon.db", "--listen", "127.0.0.1:0", "--admin-token-file", admin
        )
        pattern = re.compile(r"http://127\.0\.0\.1:[1-9][0-9]*")

        def address() -> str:
            self._check_daemon()
            found = pattern.search(self.said("daemon"))
            return found[0] if found else ""

        self.url = until(address, "the daemon to listen", 30)
        until(admin.exists, "the first token", 10)

    def start_agents(self) -> None:
        """Start an agent with simulated GPUs for each host."""
        for host in HOSTS:
            self._make_token(host, "agent")
            config = self.folder / "hosts" / f"{host}.yaml"
            config.write_text(AGENT.format(sick=json.dumps(str(self.sick_file(host)))), encoding="utf-8")
            options: list[str | Path] = [
                "--url",
                self.url,
                "--token-file",
                self.token_file(host),
                "--host",
                host,
                "--pool",
                POOL,
            ]
            options += ["--state-dir", self.sick_file(host).parent, "--shared-dir", self.folder / "shared"]
            options += ["--simulate-gpus", str(GPUS), "--config", config, "--interval", "300ms", "--stop-workloads"]
            self.agents.append(self._start(host, "agent", *options))

    def make_tokens(self) -> None:
        """A token for each person and for the reconciler."""
        for person in PEOPLE:
            self._make_token(person, "user")
        self._make_token("reconciler", "reconciler")

    def _make_token(self, name: str, role: str) -> None:
        body = {"name": name, "role": role, **({"host": name} if role == "agent" else {})}
        text = self.client("admin").post("/v1/tokens", body)["token"]
        with os.fdopen(os.open(self.token_file(name), os.O_WRONLY | os.O_CREAT, 0o600), "w") as file:
            file.write(text + "\n")

    def reconcile(self) -> str:
        """Run the reconciler once, as a process; what it printed."""
        cache = self.folder / "cache"
        code, out, err = self.run("reconciler", "reconcile", "--repo", self.repository, "--cache-dir", cache)
        if code:
            raise DemoError(f"gpubudget reconcile ended with {code}: {' '.join((out + err).split())}")
        return out

    def run(self, caller: str, *arguments: str | Path) -> tuple[int, str, str]:
        """Run a gpubudget command to its end as that caller: its exit code, stdout and stderr."""
        environment = {"GPUBUDGET_URL": self.url, "GPUBUDGET_TOKEN_FILE": str(self.token_file(caller))}
        done = subprocess.run(
            [*_GPUBUDGET, *arguments], env=_environment(environment), cwd=self.folder, check=False,
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60,
        )  # fmt: skip
        return done.returncode, done.stdout, done.stderr

    def client(self, name: str) -> Client:
        """A client that calls the daemon as that person."""
        if name not in self._clients:
            self._clients[name] = Client(self.url, self.token_file(name).read_text(encoding="ascii").strip())
        return self._clients[name]

    def said(self, name: str) -> str:
        """What the daemon or an agent has printed."""
        return (self.folder / "logs" / f"{name}.log").read_text(encoding="utf-8", errors="replace")

    def check_alive(self) -> None:
        """DemoError if the daemon or an agent has ended."""
        self._check_daemon()
        for host, agent in zip(HOSTS, self.agents, strict=False):
            if agent.poll() is not None:
                raise DemoError(f"the agent of {host} has ended: {_last(self.said(host))}")

    def _check_daemon(self) -> None:
        if self.daemon is None or self.daemon.poll() is not None:
            raise DemoError(f"the daemon has ended: {_last(self.said('daemon'))}")

    def _start(self, name: str, *arguments: str | Path) -> subprocess.Popen[bytes]:
        """Start a service, in a session of its own: Ctrl-C reaches the demo alone, which ends all in order."""
        with (self.folder / "logs" / f"{name}.log").open("wb") as output:
            return subprocess.Popen(
                [*_GPUBUDGET, *arguments], env=_environment({}), cwd=self.folder, start_new_session=True,
                stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
            )  # fmt: skip

    # The end

    def keep(self) -> Path:
        """Leave all as it is; a script that ends it."""
        self._close_clients()
        script = self.folder / "end"
        agents = " ".join(str(agent.pid) for agent in self.agents)
        daemon = self.daemon.pid if self.daemon else ""
        script.write_text(END.format(agents=agents, daemon=daemon, folder=shlex.quote(str(self.folder))))
        script.chmod(0o755)
        return script

    def remove(self) -> None:
        """End the workloads, agents and daemon, in this order, and remove the folder."""
        self._close_clients()
        _end(self.agents)
        _end([self.daemon] if self.daemon else [])
        for process in (left := self._left_over()):
            with contextlib.suppress(psutil.Error):
                process.kill()
        psutil.wait_procs(left, END_SECONDS)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _close_clients(self) -> None:
        for client in self._clients.values():
            client.__exit__()
        self._clients.clear()

    def _left_over(self) -> list[psutil.Process]:
        """Processes of this demo that are still there: services of ours, and what an agent started for a workload."""
        ours = set(psutil.Process().children())
        inside = f"{self.folder}/"
        found = []
        for process in psutil.process_iter():
            try:
                marks = [process.environ().get(name, "") for name in _MARKS]
                words = process.cmdline() if process in ours else []
            except (psutil.Error, OSError):
                continue
            if any(text.startswith(inside) for text in (*marks, *words)):
                found.append(process)
        return found


_GPUBUDGET = (sys.executable, "-P", "-m", "gpubudget")
_MARKS = ("GPUBUDGET_CHECKPOINT_DIR", "GPUBUDGET_RECORD")


def _refuse_namesakes() -> None:
    """An agent that is root runs a workload as the user of its owner's name, who could not read the demo's folder."""
    known = {user.pw_name for user in pwd.getpwall()} if os.geteuid() == 0 else set()
    if met := sorted(known.intersection(PEOPLE)):
        what = f"this machine has a user {met[0]}, and so has the demo, whose workloads would run as that user"
        raise DemoError(what, hint="run the demo as anybody but root")


def _environment(more: Mapping[str, str]) -> dict[str, str]:
    """The variables of this process without any setting of gpubudget."""
    return {name: value for name, value in os.environ.items() if not name.startswith("GPUBUDGET_")} | dict(more)


def _end(processes: list[subprocess.Popen[bytes]]) -> None:
    """Ask processes to end, and kill those that do not."""
    for process in processes:
        process.send_signal(signal.SIGTERM)
    end = time.monotonic() + END_SECONDS
    for process in processes:
        try:
            process.wait(max(end - time.monotonic(), 0.1))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _last(said: str) -> str:
    lines = said.strip().splitlines()
    return lines[-1] if lines else "it said nothing"
