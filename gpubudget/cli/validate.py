"""``validate``: every problem of a folder of budgets at once. Reads only; needs no daemon."""

from __future__ import annotations

import gc
import json
from pathlib import Path

import click

from gpubudget.gitops.diagnostics import to_json, to_text
from gpubudget.gitops.folder import load_folder
from gpubudget.gitops.load import BUDGET_FILE, CLUSTER_FILE, LoadResult


@click.command(
    epilog="""\b
Examples:
  gpubudget validate
  gpubudget validate budgets/
  gpubudget validate -o json | jq '.problems[].rule'"""
)
@click.argument("path", type=click.Path(path_type=Path), required=False)
@click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="Text for people, JSON for programs.",
)
@click.pass_context
def validate(ctx: click.Context, path: Path | None, output: str) -> None:
    """Show every problem of the budgets in the folder PATH, and change nothing.

    Without PATH: the current folder, or the folder budgets in it. Ends with 0 if the budgets can be applied (there may
    be warnings), else with 1.
    """
    gc.disable()  # all that is read is kept until the end, so collecting only costs: a quarter of the time
    ctx.call_on_close(gc.enable)
    folder = path or _usual_folder()
    result = load_folder(folder)
    prefix = "" if folder == Path() else f"{folder}/".replace("//", "/")
    click.echo(_as_json(result, prefix) if output == "json" else _as_text(result, prefix))
    ctx.exit(0 if result.tree else 1)


def _usual_folder() -> Path:
    inner = Path("budgets")
    is_tree = any(Path(name).exists() for name in (CLUSTER_FILE, BUDGET_FILE))
    return inner if inner.is_dir() and not is_tree else Path()


def _as_text(result: LoadResult, prefix: str) -> str:
    lines = [to_text(diagnostic, prefix) for diagnostic in result.diagnostics]
    warnings = sum(not diagnostic.is_error for diagnostic in result.diagnostics)
    counts = f"{_count(len(result.diagnostics) - warnings, 'error')}, {_count(warnings, 'warning')}"
    if result.tree:
        budgets, pools = sum(1 for _ in result.tree.budgets()), len(result.tree.pools)
        shares = "the shares of each fit into the whole in every pool and at every date"
        lines.append(f"valid: {_count(budgets, 'budget')}, {_count(pools, 'pool')}; {shares}; {counts}")
    else:
        lines.append(f"invalid: {counts}")
    return "\n".join(lines)


def _as_json(result: LoadResult, prefix: str) -> str:
    errors = sum(diagnostic.is_error for diagnostic in result.diagnostics)
    answer = {
        "valid": result.tree is not None,
        "budgets": sum(1 for _ in result.tree.budgets()) if result.tree else None,
        "pools": [pool.name for pool in result.tree.pools] if result.tree else None,
        "errors": errors,
        "warnings": len(result.diagnostics) - errors,
        "problems": [to_json(diagnostic, prefix) for diagnostic in result.diagnostics],
    }
    return json.dumps(answer, indent=2, ensure_ascii=False)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
