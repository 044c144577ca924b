"""``docs/cli.md``, made from the commands themselves: ``python -m gpubudget.cli.reference > docs/cli.md``.

A test compares the page with what this makes, so that no command and no option goes undocumented.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import click

from gpubudget.cli.main import SECTIONS, cli

HEAD = """# Command line

Made by `python -m gpubudget.cli.reference > docs/cli.md` from the commands themselves; `gpubudget COMMAND --help`
says the same.

Data goes to stdout, everything else to stderr, so that `id=$(gpubudget submit ...)` works. Tables are for people; for
programs there is `-o json`, `jsonl` or `yaml`, whose keys are those of the [API](daemon.md). There each time stands
twice: in milliseconds, as in the API, and as RFC 3339 under the same name without `_ms`.

Where the daemon is: `--url` or `GPUBUDGET_URL` (`http://127.0.0.1:8470`). Who is calling: `--token-file`,
`GPUBUDGET_TOKEN`, `GPUBUDGET_TOKEN_FILE`, or the file `~/.config/gpubudget/token`, in this order. Every other option
has a variable too, named with it below.

| exit code | meaning |
| --- | --- |
| 0 | done |
| 1 | failed, invalid or refused |
| 2 | changes are present (only with `--detailed-exitcode`) |
| 4 | not authorised |
| 64 | the command line itself is wrong |
| 75 | the daemon does not answer; try again later |
| 130 | interrupted |
| other | `run`, `wait` and `submit --wait` return the workload's own |
"""


def page() -> str:
    """The whole page of Markdown."""
    parts = [HEAD]
    context = click.Context(cli, info_name="gpubudget", auto_envvar_prefix="GPUBUDGET")
    for title, section in SECTIONS.items():
        parts.append(f"## {title}\n")
        for name in section:
            command = cli.get_command(context, name)
            assert command is not None  # noqa: S101 - the sections are what get_command reads
            parts += _command(command, name, context)
    return "\n".join(parts)


def commands(command: click.Command, name: str, parent: click.Context) -> Iterator[tuple[click.Command, click.Context]]:
    """A command and all below it, each with its context."""
    context = click.Context(command, parent=parent, info_name=name)
    yield command, context
    if isinstance(command, click.Group):
        for below in command.list_commands(context):
            found = command.get_command(context, below)
            assert found is not None  # noqa: S101 - it was listed
            yield from commands(found, below, context)


def _command(command: click.Command, name: str, parent: click.Context) -> Iterator[str]:
    for one, context in commands(command, name, parent):
        yield f"### {context.command_path}\n"
        yield f"    {context.command_path} {' '.join(one.collect_usage_pieces(context))}\n"
        yield inspect.cleandoc(one.help or "") + "\n"
        options = [param for param in one.params if isinstance(param, click.Option) and not param.hidden]
        if options:
            yield "| option | meaning | variable |\n| --- | --- | --- |"
            yield "\n".join(_option(option, context) for option in options) + "\n"
        if one.epilog:
            yield _examples(one.epilog)


def _option(option: click.Option, context: click.Context) -> str:
    names = ", ".join(f"`{name}`" for name in option.opts)
    if option.secondary_opts:
        names += " / " + ", ".join(f"`{name}`" for name in option.secondary_opts)
    if isinstance(option.type, click.Choice):
        names += " " + " ".join(f"`{choice}`" for choice in option.type.choices)
    elif not option.is_flag and not option.count:
        names += f" {option.metavar or option.type.name.upper()}".replace("|", r"\|")
    extra = option.get_help_extra(context)
    notes = [f"default `{extra['default']}`"] if "default" in extra else []
    notes += ["required"] if option.required else []
    help_text = " ".join((option.help or "").split()) + (f" ({', '.join(notes)})" if notes else "")
    variables = option.envvar or f"{context.auto_envvar_prefix}_{(option.name or '').upper()}"
    named = variables if isinstance(variables, str) else ", ".join(variables)
    return f"| {names} | {help_text} | `{named}` |"


def _examples(epilog: str) -> str:
    """The examples as a code block; text behind them as it is."""
    block, _, text = inspect.cleandoc(epilog).replace("\b\n", "").partition("\n\n")
    _, _, lines = block.partition("\n")
    code = "\n".join(f"    {line.strip()}" for line in lines.splitlines())
    return code + "\n" + (f"\n{' '.join(text.split())}\n" if text else "")


if __name__ == "__main__":
    print(page(), end="")  # noqa: T201 - the page is this program's output
