"""``demo``: the whole loop on this machine, with real processes, in under 90 seconds; then nothing of it is left.

It ends with 0 only if the event log proves each of (a) to (f) and an audit of the log finds nothing. Ctrl-C, SIGTERM
and SIGHUP end it as they end any program, but not before all that it started is gone.
"""

from __future__ import annotations

import json
import shlex
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

import click

from gpubudget.cli.demo_checks import verdicts
from gpubudget.cli.demo_cluster import GPUS, HOSTS, Cluster, DemoError
from gpubudget.cli.demo_scenes import SCENES, Demo, Scene
from gpubudget.cli.demo_screen import Screen
from gpubudget.errors import InvalidInputError

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class _EndedError(BaseException):
    """A signal came. Not an Exception, so that nothing on the way takes it for a fault."""


@click.command(
    epilog="""\b
Examples:
  gpubudget demo
  gpubudget demo --keep                      # leave it running, and try commands on it
  gpubudget demo --log events.jsonl && gpubudget audit events.jsonl"""
)
@click.option("--keep", is_flag=True, help="Leave it running at the end, and say how to talk to it.")
@click.option(
    "--log",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Keep the event log in this file.",
)
def demo(*, keep: bool, log: Path | None) -> int:
    """Show the whole loop on this machine, with real processes, in about a minute.

    In a temporary folder it makes a git repository of budgets, starts a daemon and three agents with eight simulated
    GPUs each, and shows ranking, preemption, protection, a repair and a change of shares. It checks what happened
    against the event log (exit code 1 if something was not shown), and removes all that it started.
    """
    with _opened(log) as file:
        return _play(Screen(sys.stdout), file, keep=keep)


@contextmanager
def _opened(log: Path | None) -> Iterator[TextIO | None]:
    """The file of --log, opened before a minute is spent on what goes there."""
    if log is None:
        yield None
        return
    try:
        file = log.open("w", encoding="utf-8")
    except OSError as error:
        raise InvalidInputError(f"the file {log} cannot be written: {error.strerror}", hint="see --log") from error
    with file:
        yield file


def _play(screen: Screen, file: TextIO | None, *, keep: bool) -> int:
    """The whole demo from the folder's making to its removal; the exit code. Raises DemoError if it failed."""
    began = time.monotonic()
    signals: list[int] = []
    with _ending(signals):
        try:
            cluster, kept = Cluster(), False
            try:
                faults = _run(Demo(cluster, screen), file, keep=keep)
                if keep:
                    _tell_how_to_talk(cluster)
                    kept = True
            finally:
                _ignore_signals()
                if not kept:
                    cluster.remove()
        except _EndedError:
            return 128 + signals[0]
    if not kept:
        screen.say(f"All of it is removed. It took {time.monotonic() - began:.0f} s.")
    if faults:
        raise DemoError("; ".join(faults), hint="run it again with --keep to look into it")
    return 0


def _run(show: Demo, file: TextIO | None, *, keep: bool) -> list[str]:
    """All scenes and the verdict; what was not as it should be."""
    screen, cluster = show.screen, show.cluster
    screen.say(f"A daemon and {len(HOSTS)} hosts with {GPUS} simulated GPUs each, in {cluster.folder}")
    screen.say()
    cluster.serve()
    cluster.make_tokens()
    try:
        for scene in SCENES:
            _play_scene(show, scene)
        if not keep:
            show.end_workloads()
        screen.show([])
    finally:
        if file is not None:
            file.write(_text(show))
    return _judge(show)


def _play_scene(show: Demo, scene: Scene) -> None:
    letters = f"({scene.letters}) " if scene.letters else ""
    show.screen.say(f"== {letters}{scene.sentence}", " " * 3)
    try:
        scene.play(show)
    except DemoError as error:
        what = f"{letters}was not shown: {error.message}" if letters else error.message
        raise DemoError(what, hint=error.hint) from error
    show.screen.settle()


def _text(show: Demo) -> str:
    """The event log so far, as a file has it."""
    return "".join(json.dumps(line) + "\n" for line in show.log)


def _judge(show: Demo) -> list[str]:
    """Say what happened, checked against the event log; what was not shown, and whether the audit found something."""
    screen = show.screen
    log = show.cluster.folder / "events.jsonl"
    log.write_text(_text(show), encoding="utf-8")
    screen.say("What happened, checked against the event log:")
    found = verdicts(show.story())
    for letter, (shown, sentence) in found.items():
        screen.say(f"({letter}) {'shown    ' if shown else 'NOT SHOWN'}  {sentence}", " " * 15)
    code, out, err = show.cluster.run("admin", "audit", log)
    screen.say(f"gpubudget audit: {len(show.log)} events, {err.strip() or 'no verdict'}")
    missing = [f"({letter})" for letter, (shown, _) in found.items() if not shown]
    faults = [f"{', '.join(missing)} {'were' if len(missing) > 1 else 'was'} not shown"] if missing else []
    return faults + ([f"the audit of the event log says: {' '.join(out.split())}"] if code else [])


def _tell_how_to_talk(cluster: Cluster) -> None:
    """Commands that can be copied as they stand; a test runs each."""
    quoted = {name: shlex.quote(str(path)) for name, path in _places(cluster).items()}
    click.echo(_HOW_TO_TALK.format(url=cluster.url, **quoted))


def _places(cluster: Cluster) -> dict[str, Path]:
    return {
        "bin": Path(sys.executable).parent,
        "admin": cluster.token_file("admin"),
        "ivan": cluster.token_file("ivan"),
        "python": Path(sys.executable),
        "train": cluster.train,
        "lab": cluster.repository,
        "cache": cluster.folder / "cache",
        "sick": cluster.sick_file(HOSTS[0]),
        "end": cluster.keep(),
    }


_HOW_TO_TALK = """
It is left running. As its administrator:
  export PATH={bin}:$PATH GPUBUDGET_URL={url} GPUBUDGET_TOKEN_FILE={admin}
  gpubudget get workloads
  gpubudget get hosts
  gpubudget usage
  gpubudget get events -o jsonl | gpubudget audit -
As ivan:
  gpubudget submit --token-file {ivan} -b vision/molmo/ivan -g 2 -m 10s -- {python} {train} 300
Change a share in its repository, and apply the commit:
  sed -i 's/vision: 40%/vision: 42%/' {lab}/budgets/budget.yaml
  git -C {lab} -c user.name=Ines -c user.email=ines@example.org commit -qam 'Vision gets 42%'
  gpubudget reconcile --repo {lab} --cache-dir {cache}
Make a GPU ill; its host drains, is repaired and comes back:
  echo '{{"sick": [3]}}' > {sick}
End it, and remove all of it:
  {end}"""


@contextmanager
def _ending(signals: list[int]) -> Iterator[None]:
    """Lets the first signal end what is being done, wherever it is; one that is ignored stays so."""

    def end(number: int, _frame: object) -> None:
        _ignore_signals()
        signals.append(number)
        raise _EndedError

    before = {number: signal.getsignal(number) for number in _SIGNALS}
    for number in _SIGNALS:
        if before[number] is not signal.SIG_IGN:
            signal.signal(number, end)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _ignore_signals() -> None:
    """From here on all is being removed; that takes seconds, and is not to be broken off."""
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_IGN)
