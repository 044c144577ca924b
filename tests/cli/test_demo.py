"""The demo for real: it shows what it promises, several at once, and leaves nothing behind, however it ends."""

from __future__ import annotations

import json
import os
import pwd
import re
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from gpubudget.cli import demo, demo_cluster
from gpubudget.cli.demo_cluster import DemoError, until
from gpubudget.cli.demo_scenes import SCENES, Demo, Scene, with_shares
from gpubudget.sim.audit import audit
from tests.cli.cluster import GPUBUDGET
from tests.cli.cluster import until as wait_until
from tests.cli.conftest import Cli

LIMIT = 90
"""Seconds that a whole demo may take."""


@dataclass
class Run:
    """A demo that runs in a folder of its own, without a home folder and any configuration of git."""

    folder: Path
    process: subprocess.Popen[bytes]

    @property
    def said(self) -> str:
        return (self.folder / "out").read_text()

    @property
    def place(self) -> Path:
        """The demo's own folder, as it says at once."""
        found = re.search(rf"{self.folder}/gpubudget-demo-\w+", self.said)
        assert found, self.said
        return Path(found[0])

    def left(self) -> list[str]:
        """What is still there: processes with the folder's name in their words or variables, and what it holds."""
        needle, found = str(self.folder).encode(), []
        for entry in Path("/proc").iterdir():
            try:
                text = (
                    (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes() if entry.name.isdigit() else b""
                )
            except OSError:
                continue
            if needle in text and int(entry.name) not in {os.getpid(), self.process.pid}:
                found.append(f"{entry.name}: {text[:300]!r}")
        return found + [str(path) for path in self.folder.glob("gpubudget-demo-*")]


def run(folder: Path, *options: str) -> Run:
    folder.mkdir()
    environment = {"PATH": os.environ["PATH"], "TMPDIR": str(folder), "HOME": "/nowhere", "GIT_DIR": "/nowhere"}
    with (folder / "out").open("wb") as out:
        process = subprocess.Popen(
            [GPUBUDGET, "demo", *options], env=environment, stdin=subprocess.DEVNULL, stdout=out,
            stderr=subprocess.STDOUT,
        )  # fmt: skip
    return Run(folder, process)


@pytest.fixture(scope="module", autouse=True)
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Run, Run]]:
    """Two whole demos at the same time, one of which is kept. They go on while other tests run."""
    folder = tmp_path_factory.mktemp("demos")
    plain = run(folder / "plain", "--log", str(folder / "events.jsonl"))
    kept = run(folder / "kept", "--keep")
    try:
        yield plain, kept
    finally:
        for one in (plain, kept):
            one.process.terminate()
            one.process.wait(20)
        if ends := list(kept.folder.glob("gpubudget-demo-*/end")):
            subprocess.run([ends[0]], check=True)


@pytest.fixture(scope="module")
def both(started: tuple[Run, Run]) -> tuple[Run, Run]:
    """The two when they have ended."""
    for one in started:
        one.process.wait(LIMIT)
    return started


def test_a_signal_ends_it_and_all_that_it_started(tmp_path: Path) -> None:
    """Ctrl-C, SIGTERM, a closed terminal, early or in the middle: a demo removes all and ends as a signal ends it."""
    cases = {signal.SIGINT: "makes way for ivan-1", signal.SIGTERM: "A daemon and", signal.SIGHUP: "alice-2 starts"}
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        del cases[signal.SIGHUP]  # the tests run under nohup, and what they start is as deaf
    runs = {number: run(tmp_path / number.name) for number in cases}
    for number, words in cases.items():
        one = runs[number]
        wait_until(lambda one=one, words=words: words in one.said, f"{words} to be said", 60)  # type: ignore[misc] # a lambda
        one.process.send_signal(number)
    for number, one in runs.items():
        assert one.process.wait(20) == 128 + number, one.said
        assert one.left() == []


def test_a_reader_that_leaves_ends_it(tmp_path: Path) -> None:
    """Of `gpubudget demo | head -1` nothing is left either, and no complaint is printed."""
    environment = {"PATH": os.environ["PATH"], "TMPDIR": str(tmp_path)}
    with subprocess.Popen(
        [GPUBUDGET, "demo"], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout
        assert process.stderr
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(60) == 1
    assert list(tmp_path.iterdir()) == []


def test_an_unwritable_log_is_told_at_once(cli: Cli, tmp_path: Path) -> None:
    """A --log that cannot be written is one sentence before anything is started."""
    log = tmp_path / "none" / "events.jsonl"
    done = cli("demo", "--log", str(log))
    assert (done.code, done.out) == (1, "")
    assert done.err == f"error: the file {log} cannot be written: No such file or directory\nhint: see --log\n"


def test_without_git_it_says_so(cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Where there is no git the demo ends with that sentence, and leaves nothing."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    done = cli("demo")
    assert (done.code, done.err) == (1, "error: git cannot be run: No such file or directory\nhint: install git\n")
    assert list(tmp_path.iterdir()) == []


def test_a_scene_that_does_not_come_off_is_named(cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A condition that is not met ends it with exit code 1, the letter and what was waited for; the log is kept."""

    def wait(show: Demo) -> None:
        """A host that is not there."""
        show.cluster.make_repository()
        show.cluster.reconcile()
        show.until(lambda: "h9" in show.hosts, "h9", 0)

    monkeypatch.setattr(demo, "SCENES", (Scene("e", wait),))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    done = cli("demo", "--log", str(tmp_path / "events.jsonl"))
    assert done.code == 1
    assert done.err.startswith("error: (e) was not shown: waited 0 s for h9, and it did not happen\nhint: ")
    assert '"budgets_applied"' in (tmp_path / "events.jsonl").read_text()
    assert [path.name for path in tmp_path.iterdir()] == ["events.jsonl"]


def test_what_the_log_does_not_show_fails_it(cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A demo in which nothing happened says of each part that it was not shown, and ends with exit code 1."""
    monkeypatch.setattr(demo, "SCENES", SCENES[:1])
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    done = cli("demo")
    assert done.code == 1
    assert re.findall(r"^\((\w)\) NOT SHOWN ", done.out, re.MULTILINE) == list("abcdef")
    assert done.err.startswith("error: (a), (b), (c), (d), (e), (f) were not shown\n")
    assert list(tmp_path.iterdir()) == []


def test_a_namesake_is_refused(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """Root is told at once when a person of the demo is a user of this machine; anybody else may run it."""
    me = pwd.getpwuid(os.geteuid()).pw_name
    monkeypatch.setattr(demo_cluster, "PEOPLE", ("nobody-else", me))
    if os.geteuid() == 0:
        done = cli("demo")
        assert (done.code, done.err.splitlines()[1]) == (1, "hint: run the demo as anybody but root")
    else:
        demo_cluster.Cluster().remove()


def test_what_did_not_happen_in_time_is_named() -> None:
    """A condition that is not met by its deadline ends the demo, and the sentence says what was waited for."""
    with pytest.raises(DemoError, match="waited 0 s for h1 to drain, and it did not happen"):
        until(lambda: False, "h1 to drain", 0)


def test_a_service_that_ends_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A daemon that cannot run ends the demo with its own last words."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    cluster = demo_cluster.Cluster()
    (cluster.folder / "daemon.db").mkdir()
    with pytest.raises(DemoError, match="the daemon has ended: hint: "):
        cluster.serve()
    cluster.remove()
    assert list(tmp_path.iterdir()) == []


def test_each_scene_says_what_it_shows() -> None:
    """Every letter belongs to a scene, and every scene has its sentence."""
    assert {letter for scene in SCENES for letter in scene.letters.split(", ") if letter} == set("abcdef")
    assert all(scene.sentence.endswith(".") for scene in SCENES)


def test_a_share_is_changed_where_it_stands() -> None:
    """Only the child that is named changes, with whatever was written below it; a child that is not there is told."""
    text = (
        "children:\n  language: 50%\n  science:\n    share: 20%\n    changes:   # dated\n      - {from: x}\n  b: 1%\n"
    )
    assert with_shares(text, {"science": "5%"}) == "children:\n  language: 50%\n  science: 5%\n  b: 1%\n"
    with pytest.raises(ValueError, match="0 children named art"):
        with_shares(text, {"art": "1%"})


def test_everything_is_shown(both: tuple[Run, Run]) -> None:
    """(a) to (f) are shown, in order and under 90 seconds, also while another demo runs and without a home folder."""
    for one in both:
        assert one.process.returncode == 0, one.said
        assert re.findall(r"^\((\w)\) shown ", one.said, re.MULTILINE) == list("abcdef")
        assert "nothing is wrong" in one.said


def test_its_log_is_kept_and_sound(both: tuple[Run, Run]) -> None:
    """--log leaves the public event log, in which the audit finds nothing and every kind of its events stands."""
    lines = (both[0].folder.parent / "events.jsonl").read_bytes().splitlines()
    assert audit(lines).findings == []
    kinds = {json.loads(line)["kind"] for line in lines}
    assert kinds >= {"budgets_applied", "host", "submitted", "started", "claimed", "stopping", "stopped", "requeued"}


def test_nothing_is_left(both: tuple[Run, Run]) -> None:
    """A demo that has ended leaves no process and no file, but for its log."""
    assert both[0].left() == []


def test_what_is_kept_can_be_talked_to(both: tuple[Run, Run]) -> None:
    """Every command that --keep prints does what it says, and the last one removes all."""
    kept = both[1]
    _, _, told = kept.said.partition("It is left running.")
    commands = [line.strip() for line in told.splitlines() if line.startswith("  ")]
    assert len(commands) == 11
    done = subprocess.run(
        ["bash", "-euxo", "pipefail", "-c", "\n".join(commands)], check=False, capture_output=True, text=True,
        env={"PATH": os.environ["PATH"], "HOME": "/nowhere"}, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "share 40% -> 42%" in done.stdout
    assert done.stdout.endswith("all of it is removed\n")
    assert kept.left() == []
