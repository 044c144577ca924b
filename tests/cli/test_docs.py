"""The page of the command line says what the commands are; every command shows how it is used."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from gpubudget.cli import reference
from gpubudget.cli.main import SECTIONS, cli

PAGE = Path(__file__).parent.parent.parent / "docs" / "cli.md"
NAMES = [name for section in SECTIONS.values() for name in section]


def commands(name: str) -> Iterator[tuple[click.Command, click.Context]]:
    """A command and those below it."""
    context = click.Context(cli, info_name="gpubudget", auto_envvar_prefix="GPUBUDGET")
    command = cli.get_command(context, name)
    assert command is not None
    yield from reference.commands(command, name, context)


def test_the_page_is_up_to_date() -> None:
    """docs/cli.md is what the commands say of themselves; if not, make it anew as its first lines say."""
    assert PAGE.read_text(encoding="utf-8") == reference.page()


@pytest.mark.parametrize("name", NAMES)
def test_every_command_and_option_is_explained(name: str) -> None:
    """No command without a sentence, no option without a help text, and both are on the page."""
    page = PAGE.read_text(encoding="utf-8")
    for command, context in commands(name):
        assert command.help, context.command_path
        assert f"### {context.command_path}\n" in page
        for param in command.params:
            if isinstance(param, click.Option):
                assert param.help, f"{context.command_path} {param.name}"
                assert f"`{max(param.opts, key=len)}`" in page


@pytest.mark.parametrize("name", NAMES)
def test_every_help_has_an_example(name: str) -> None:
    """The help of each command that does something ends with a command line to copy."""
    for command, context in commands(name):
        if not isinstance(command, click.Group):
            assert f"\n  {context.command_path}" in (command.epilog or "") or "<(gpubudget" in (command.epilog or "")


def test_exit_codes_on_the_page_are_those_of_the_errors() -> None:
    """The table of exit codes has every code that an error carries."""
    from gpubudget import errors

    kinds = [
        kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.GpuBudgetError)
    ]
    page = reference.HEAD
    assert all(f"\n| {kind.exit_code} |" in page for kind in kinds)
