"""How commands are found, how they end, and how quickly the program starts."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import click
import pytest

from gpubudget import __version__
from gpubudget.cli import main as main_module
from gpubudget.cli.main import SECTIONS, cli, run_command
from gpubudget.errors import ForbiddenError

GPUBUDGET = Path(sys.executable).parent / "gpubudget"


def test_version(cli: Callable[..., tuple[int, str, str]]) -> None:
    """The version is one line on stdout."""
    assert cli("version") == (0, f"gpubudget {__version__}\n", "")
    assert cli("--version") == (0, f"gpubudget {__version__}\n", "")


def test_no_arguments_print_the_help(cli: Callable[..., tuple[int, str, str]]) -> None:
    """Called with nothing, the program says what it can do."""
    assert cli() == cli("--help")


def test_help_lists_every_command_without_importing_any() -> None:
    """The help of the program loads no command's module, so that it and ``version`` start quickly."""
    script = (
        "import sys; from gpubudget.cli.main import run_command; run_command(['--help']);"
        "print([name for name in sys.modules if name.startswith('gpubudget.cli.') and not name.endswith('main')],"
        " 'requests' in sys.modules, 'yaml' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[] False False"
    for section in SECTIONS.values():
        assert all(f"  {name} " in done.stdout for name in section)


def test_start_is_quick() -> None:
    """``gpubudget version`` takes less than 150 ms of a processor: the best of several, for other programs run too."""
    times = []
    for _ in range(5):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([GPUBUDGET, "version"], check=True, capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    assert min(times) < 0.15


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["frobnicate"], "No such command 'frobnicate'."),
        (["get", "frobs"], "'frobs' is not one of 'budgets', 'workloads', 'hosts'"),
        (["get"], "Missing argument 'KIND'"),
        (["version", "more"], "Got unexpected extra argument (more)"),
        (["submit", "--gpsu", "1"], "No such option"),
        (["completion", "powershell"], "'powershell' is not one of 'bash', 'zsh', 'fish'"),
    ],
)
def test_wrong_usage_is_one_sentence(
    cli: Callable[..., tuple[int, str, str]], arguments: list[str], message: str
) -> None:
    """A wrong command line ends with 64, one line that says what is wrong and one that says where help is."""
    code, out, err = cli(*arguments)
    assert (code, out) == (64, "")
    lines = err.splitlines()
    assert len(lines) == 2
    assert lines[0].startswith("error: ")
    assert message in lines[0]
    assert lines[1].startswith("hint: `gpubudget")


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (ForbiddenError("bob may not", hint="ask hanna"), 4, "error: bob may not\nhint: ask hanna\n"),
        (KeyboardInterrupt(), 130, ""),
        (click.ClickException("no\nway"), 1, "error: no\nway\n"),
        (ValueError("odd\nthing"), 1, "error: an unexpected fault, ValueError: odd thing\nhint: please report it"),
        (ValueError(), 1, "error: an unexpected fault, ValueError: no further word\nhint: please report it"),
        (
            PermissionError(13, "No", "a/b"),
            1,
            "error: a/b cannot be used: No\nhint: check the path and",
        ),
        (TimeoutError("late"), 1, "error: an unexpected fault, TimeoutError: late\nhint: please report it"),
    ],
)
def test_endings(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: BaseException, code: int, text: str
) -> None:
    """Each kind of error has its exit code and its words; none shows a traceback."""

    @click.command()
    def fail() -> None:
        raise error

    monkeypatch.setattr(cli, "get_command", lambda _ctx, _name: fail)
    assert run_command(["fail"]) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert err.lstrip().startswith(text)


def test_names_and_places_that_the_machine_does_not_take(tmp_path: Path) -> None:
    """A name that is too long, a folder that is gone: no fault of the program, so nobody is asked to report it."""
    gone = f"mkdir gone && cd gone && rmdir ../gone && exec {GPUBUDGET}"
    for command, said in (
        (f"{GPUBUDGET} init {'a' * 300}", f"{'a' * 300}/.git cannot be used: File name too long"),
        (f"{gone} plan HEAD", "the current folder is gone"),
    ):
        done = subprocess.run(command, shell=True, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr.startswith(f"error: {said}\nhint: ch")


def test_debugging_shows_where(monkeypatch: pytest.MonkeyPatch) -> None:
    """With GPUBUDGET_DEBUG=1 an unexpected fault is raised as it is."""

    @click.command()
    def fail() -> None:
        raise ValueError("odd")

    monkeypatch.setattr(cli, "get_command", lambda _ctx, _name: fail)
    monkeypatch.setenv("GPUBUDGET_DEBUG", "1")
    with pytest.raises(ValueError, match="odd"):
        run_command(["fail"])


def test_a_command_that_is_missing(cli: Callable[..., tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch) -> None:
    """A command whose module is not installed says so."""
    monkeypatch.setitem(SECTIONS["Other"], "missing", ("nowhere:missing", ""))
    assert cli("missing") == (
        1,
        "",
        "error: this installation has no command 'missing'\nhint: install gpubudget anew\n",
    )


def test_a_reader_that_leaves_is_no_error() -> None:
    """``gpubudget --help | head -0`` prints nothing more, on stderr neither."""
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run([GPUBUDGET, "--help"], stdout=write, stderr=subprocess.PIPE, check=False)
    os.close(write)
    assert (done.returncode, done.stderr) == (1, b"")


@pytest.mark.parametrize("arguments", [["--help"], ["completion", "bash"]])
def test_a_full_disk_is_told(arguments: list[str]) -> None:
    """Output that cannot be written is one sentence and exit code 1."""
    with Path("/dev/full").open("w", encoding="ascii") as full:
        done = subprocess.run([GPUBUDGET, *arguments], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "error: cannot write the output: No space left on device\n")


def test_a_closed_output_is_no_error() -> None:
    """``gpubudget version >&-`` ends as it would otherwise."""
    done = subprocess.run(f"{GPUBUDGET} version >&-", shell=True, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(cli: Callable[..., tuple[int, str, str]], shell: str) -> None:
    """Each shell gets a script that asks the program itself."""
    code, out, err = cli("completion", shell)
    assert (code, err) == (0, "")
    assert f"_GPUBUDGET_COMPLETE={shell}_complete" in out


def test_completion_answers() -> None:
    """What the scripts ask for is answered: commands by their beginning."""
    env = os.environ | {"_GPUBUDGET_COMPLETE": "bash_complete", "COMP_WORDS": "gpubudget un", "COMP_CWORD": "1"}
    done = subprocess.run([GPUBUDGET], env=env, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["plain,uncordon"]


def test_the_module_runs() -> None:
    """``python -m gpubudget`` is the same program."""
    done = subprocess.run([sys.executable, "-m", "gpubudget", "version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"gpubudget {__version__}\n"
    assert main_module.USAGE == 64


def test_an_interrupt_while_it_starts_is_silent() -> None:
    """As it is later: exit code 130, and no traceback."""
    script = (
        "import sys\n"
        "class Interrupted:\n"
        "    def find_spec(self, name, path, target=None):\n"
        "        if name == 'gpubudget.cli.main':\n"
        "            raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Interrupted())\n"
        "from gpubudget.__main__ import main\n"
        "main()\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")
