"""``simulate --against``: one history under two trees of budgets, that of a commit and that of a folder."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gpubudget.cli.compare import DAEMON, answered, question
from gpubudget.cli.output import Column, table
from gpubudget.errors import UsageError
from gpubudget.sim import report
from gpubudget.sim.compare import BudgetDifference, differences
from gpubudget.sim.measures import Measures
from gpubudget.sim.prepare import Choice, prepare
from gpubudget.sim.submission import Scenario
from gpubudget.sim.whatif import BEGINS_EMPTY, NEVER_KNOWN, under


def both(choice: Choice, ref: str) -> list[tuple[str, Scenario]]:
    """The scenario with the budgets at the commit that ``ref`` means, and with those of the folder, by their names.

    Whatever is made up is made up for the former; the same work then comes under the latter. Shares are those of now.
    """
    if choice.budgets is None:
        raise UsageError("--against compares two trees of budgets", hint="give the folder of one with --budgets")
    if ref == DAEMON:
        raise UsageError(
            "--against names a commit here", hint="`gpubudget plan --against daemon --replay 14d` asks the daemon"
        )
    found = answered(question(str(choice.budgets), ref), None)
    base = prepare(choice, found.before)
    begins = () if choice.warm_up else (BEGINS_EMPTY,)
    notes = (*base.workloads.assumptions, NEVER_KNOWN, *begins)
    base = replace(base, workloads=replace(base.workloads, assumptions=notes))
    after = replace(found.after, policy=choice.rules.of(found.after.policy))
    if choice.hosts is not None:
        after = replace(after, pools=base.tree.pools)
    now = found.review.as_of_ms
    return [(ref, under(base, base.tree, now)), (str(choice.budgets), under(base, after, now))]


def changes(before: Measures, after: Measures) -> str:
    """A table of the budgets for which anything is different."""
    rows = [{"budget": each} for each in differences(before, after) if each.changed]
    return table(rows, _COLUMNS) if rows else "nothing is different for any budget"


def _moved(figure: str, show: Any) -> Any:  # noqa: ANN401 - one of several kinds of figures
    def column(row: dict[str, Any]) -> str:
        budget: BudgetDifference = row["budget"]
        return report.change(getattr(budget, figure), show)

    return column


_COLUMNS = [
    Column("BUDGET", lambda row: row["budget"].name),
    Column("SHARE", _moved("share", report.percent)),
    Column("WAIT P50", _moved("wait_p50_ms", report.wait)),
    Column("WAIT P90", _moved("wait_p90_ms", report.wait)),
    Column("GPU-HOURS", _moved("delivered_gpu_ms", report.gpu_hours)),
    Column("PREEMPTED", _moved("preempted", report.number)),
]
