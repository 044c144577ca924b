"""``owners``: CODEOWNERS from the managers; ``approvals``: whose approval a change still lacks."""

from __future__ import annotations

import json
from pathlib import Path

import click

from gpubudget.cli.compare import PEOPLE, answered, invalid_shown, question
from gpubudget.cli.planview import approval_lines
from gpubudget.cli.validate import usual_folder
from gpubudget.errors import InvalidInputError, RefusedError
from gpubudget.gitops.owners import codeowners, renewed
from gpubudget.gitops.record import write_whole
from gpubudget.gitops.review import to_json
from gpubudget.gitops.revision import repository_folder
from gpubudget.gitops.sides import read_valid
from gpubudget.gitops.wording import compared
from gpubudget.units import count

PLACES = (".github/CODEOWNERS", "CODEOWNERS", "docs/CODEOWNERS")
"""Where GitHub looks for the file, in its order."""


@click.command(
    epilog="""\b
Examples:
  gpubudget owners
  gpubudget owners --check
  gpubudget owners budgets/ --file docs/CODEOWNERS"""
)
@click.argument("path", type=click.Path(path_type=Path), required=False)
@click.option("--check", is_flag=True, help="Write nothing; fail if the file is not up to date.")
@click.option(
    "--file", type=click.Path(path_type=Path), help=f"The file to write.  [default: the one there is, or {PLACES[0]}]"
)
def owners(path: Path | None, *, check: bool, file: Path | None) -> None:
    """Write the CODEOWNERS file that asks the managers of each budget in PATH for their approval.

    A budget's file belongs to its managers: the shares of its children stand there. Lines that are not made by this
    command stay as they are.
    """
    folder = path or usual_folder()
    with invalid_shown():
        tree, files = read_valid(folder)
    top = repository_folder(folder).resolve()
    place = file or next((top / name for name in PLACES if (top / name).exists()), top / PLACES[0])
    there = _text(place)
    own = str(place.resolve().relative_to(top)) if place.resolve().is_relative_to(top) else ""
    wanted = renewed(there, codeowners(tree, files, str(folder.resolve().relative_to(top)), own))
    if there == wanted:
        click.echo(f"{place} is up to date")
    elif check:
        missing = [line for line in wanted.splitlines() if line not in there.splitlines()]
        detail = f"it lacks: {missing[0]}" if missing else "it has lines of budgets that are gone"
        raise RefusedError(f"{place} is not up to date; {detail}", hint="run `gpubudget owners` and commit the file")
    else:
        place.parent.mkdir(parents=True, exist_ok=True)
        write_whole(place, wanted)
        click.echo(f"wrote {place}")


def _text(place: Path) -> str:
    """What is in a file; nothing if it is not there."""
    try:
        return place.read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeError) as error:
        why = getattr(error, "strerror", None) or "it is not text"
        raise InvalidInputError(f"{place} cannot be read: {why}", hint="name another one with --file") from error


@click.command(
    epilog="""\b
Examples:
  gpubudget approvals --base origin/main --head HEAD --approved-by hanna,ravi
  gpubudget approvals --base main -o json"""
)
@click.option("--base", default="main", show_default=True, metavar="REF", help="The commit whose managers decide.")
@click.option("--head", default="HEAD", show_default=True, metavar="REF", help="The commit that is to be merged.")
@click.option("--approved-by", type=PEOPLE, default="", metavar="NAMES", help="Who has approved its newest state.")
@click.option(
    "--repo", type=click.Path(path_type=Path), metavar="PATH", help="The repository.  [default: the one here]"
)
@click.option("--path", help="The folder of budgets in the repository.  [default: budgets]")
@click.option(
    "-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True, help="Text or JSON."
)
def approvals(
    *, base: str, head: str, approved_by: tuple[str, ...], repo: Path | None, path: str | None, output: str
) -> int:
    """Say which changed budgets still lack an approval; end with 1 if one does.

    Who may approve is said by the tree at the base, so nobody becomes a manager by the change they approve. Removed
    budgets count like all others.
    """
    asked = question(head, base, repo=repo, path=path, approved_by=approved_by)
    found = answered(asked, None).review
    lacking = [one for one in found.approvals if one.lacking]
    if output == "json":
        rows = to_json(found)["approvals"]
        for row, one in zip(rows, found.approvals, strict=True):
            row["lacking"] = one.lacking
        click.echo(json.dumps({"approvals": rows, "lacking": len(lacking)}, indent=2, ensure_ascii=False))
    else:
        told = approval_lines(found.approvals) or [f"{compared(found)}: nothing to approve"]
        click.echo("\n".join([*told, *_verdict(len(lacking), len(found.approvals))]))
    return 1 if lacking else 0


def _verdict(lacking: int, needed: int) -> list[str]:
    if not needed:
        return []
    return ["", f"{lacking} of {count(needed, 'approval')} lacking" if lacking else "nothing lacks an approval"]
