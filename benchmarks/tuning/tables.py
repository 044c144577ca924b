"""The tables of the study, in Markdown. Waits of debug workloads are those of the worst seed, the rest are means."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from benchmarks.tuning.cases import NO_LIMIT, Case
from benchmarks.tuning.grids import (
    ALLOWANCE,
    DEMAND,
    DEMAND_LARGE,
    FILLED,
    GAMING,
    LABEL,
    LANE,
    LONGEST,
    LOOKBACKS,
    MANY,
    OLD,
    PHILLY,
    SESSIONS,
    SIZES,
    WAYS,
    WINDOW,
    WINDOW_LARGE,
)
from gpubudget.units import DAY, HOUR, about_duration

Found = dict[Case, dict[str, Any]]
Cases = Sequence[Case]


# Reading figures


def values(found: Found, cases: Cases, *names: str) -> list[Any]:
    """One figure of each seed, where it has one."""
    read: list[Any] = [found[case] for case in cases]
    for name in names:
        read = [each[name] for each in read if each is not None and name in each]
    return [each for each in read if each is not None]


def mean(found: Found, cases: Cases, *names: str) -> float:
    """The mean over seeds."""
    read = values(found, cases, *names)
    return float(sum(read) / len(read))


def worst(found: Found, cases: Cases, *names: str) -> str:
    """A wait, of the seed where it is the longest."""
    return about_duration(max(values(found, cases, *names)))


def percent(found: Found, cases: Cases, name: str) -> str:
    return f"{mean(found, cases, name):.1%}"


def hours(found: Found, cases: Cases, name: str) -> str:
    return f"{mean(found, cases, name):,.0f}"


def usual(found: Found, cases: Cases, *names: str) -> str:
    """A wait, in the mean over seeds."""
    return about_duration(int(mean(found, cases, *names)))


def table(header: str, rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown; ``header`` has the names, with ``|`` between."""
    names = [name.strip() for name in header.split("|")]
    lines = [names, ["---", *["---:"] * (len(names) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def gpus(lane: int) -> str:
    return f"{lane} GPUs" if lane else "none"


# The parts


def lane_table(found: Found) -> str:
    header = (
        "lane | p50 | p90 | p99 | under-used, p90 | over-used, p90 | 8 GPUs, p90 | others' GPU-hours | "
        "others' wait, p50 | p90 | occupancy"
    )
    parts = []
    for cluster, sizes in SIZES.items():
        without = mean(found, LANE[cluster, 0], "others GPU-h")
        rows = []
        for lane in sizes:
            cases = LANE[cluster, lane]
            change = mean(found, cases, "others GPU-h") / without - 1
            debug = [worst(found, cases, "debug", name) for name in ("p50", "p90", "p99")]
            groups = [worst(found, cases, group, "p90") for group in ("under-used", "over-used", "debug 8")]
            others = [usual(found, cases, "others", name) for name in ("p50", "p90")]
            cost = f"{change:+.1%}" if lane else hours(found, cases, "others GPU-h")
            rows.append([gpus(lane), *debug, *groups, cost, *others, percent(found, cases, "occupancy")])
        parts.append(f"{LABEL[cluster]}:\n\n{table(header, rows)}")
    return "\n\n".join(parts)


def filled_table(found: Found) -> str:
    rows = [
        [gpus(lane), hours(found, cases, "others GPU-h"), percent(found, cases, "occupancy"),
         worst(found, cases, "debug", "p90"), worst(found, cases, "over-used", "p90")]
        for lane, cases in FILLED.items()
    ]  # fmt: skip
    return table("lane | others' GPU-hours | occupancy | debug wait, p90 | over-used, p90", rows)


def busy(case: Case) -> float:
    """How many GPUs debug workloads hold in the mean from 9 to 19 on working days, if none waits."""
    subs = [each for each in case.scenario().workloads.submissions if each.spec.debug]
    by_day = [each for each in subs if each.at // DAY % 7 < 5 and 9 <= each.at // HOUR % 24 < 19]
    return sum(each.run_time * each.spec.gpus for each in by_day) / (50 * HOUR * case.days / 7)


def demand_table(found: Found) -> str:
    rows = []
    for sessions in SESSIONS:
        cells = [
            f"{worst(found, DEMAND[sessions, lane], 'debug', 'p90')}, "
            f"{worst(found, DEMAND[sessions, lane], 'over-used', 'p90')}, "
            f"{worst(found, DEMAND[sessions, lane], 'debug 8', 'p90')}"
            for lane in (8, 16, 24)
        ]
        rows.append([sessions, f"{busy(DEMAND[sessions, 8][0]):.1f}", *cells])
    return table("sessions a person and day | GPUs wanted by day | lane of 8 | 16 | 24", rows)


def large_table(found: Found) -> str:
    rows = []
    cases = {("1", lane): LANE["lab", lane] for lane in (8, 16, 32)} | DEMAND_LARGE
    for (sessions, lane), some in cases.items():
        waits = [worst(found, some, group, "p90") for group in ("debug", "over-used", "debug 8")]
        rows.append([sessions, f"{busy(some[0]):.1f}", str(lane), worst(found, some, "debug", "p50"), *waits])
    return table("sessions a person and day | GPUs wanted by day | lane | p50 | p90 | over-used | 8 GPUs", rows)


def allowance_table(found: Found) -> str:
    rows = [
        [most(allowance), *(worst(found, cases, "debug", name) for name in ("p50", "p90", "p99")),
         worst(found, cases, "over-used", "p90"), worst(found, cases, "debug 8", "p90")]
        for allowance, cases in ALLOWANCE.items()
    ]  # fmt: skip
    return table("allowance | p50 | p90 | p99 | over-used, p90 | 8 GPUs, p90", rows)


def most(allowance: int) -> str:
    return "none" if allowance == NO_LIMIT else about_duration(allowance)


def window_table(found: Found) -> str:
    def cell(cases: Cases) -> str:
        return (
            f"{usual(found, cases, 'others', 'p90')}, {percent(found, cases, 'share error')}, "
            f"{mean(found, cases, 'Jain'):.3f}, {hours(found, cases, 'lost GPU-h')}"
        )

    rows = [
        [about_duration(lookback), *(cell(WINDOW[lookback, longest]) for longest in LONGEST)] for lookback in LOOKBACKS
    ]
    names = " | ".join(about_duration(longest) for longest in LONGEST)
    return table(f"lookback | longest minimum {names}", rows)


def window_large_table(found: Found) -> str:
    header = (
        "lookback, longest minimum | wait, p50 | p90 | share error | Jain's index | impact | occupancy | preemptions | "
        "GPU-hours lost | no later than alone | debug wait, p90"
    )
    parts = []
    for cluster in (PHILLY, "lab"):
        rows = []
        for (name, lookback, longest), cases in WINDOW_LARGE.items():
            if name != cluster:
                continue
            waits = [usual(found, cases, "others", which) for which in ("p50", "p90")]
            parts_of = [percent(found, cases, which) for which in ("impact", "occupancy")]
            rows.append([
                f"{about_duration(lookback)}, {about_duration(longest)}", *waits, percent(found, cases, "share error"),
                f"{mean(found, cases, 'Jain'):.3f}", *parts_of, hours(found, cases, "preemptions"),
                hours(found, cases, "lost GPU-h"), percent(found, cases, "no later than alone"),
                worst(found, cases, "debug", "p90"),
            ])  # fmt: skip
        parts.append(f"{LABEL[cluster]}:\n\n{table(header, rows)}")
    return "\n\n".join(parts)


def gaming_table(found: Found) -> str:
    rows = []
    for how, each, allowance in WAYS:
        rule = ""
        if "chain" in how:
            rule = f"{each} at a time, {'no allowance' if allowance == NO_LIMIT else most(allowance) + ' a day'}"
        cells = []
        for crowd in (True, False):
            cases = GAMING[crowd, how, each, allowance]
            cells += [f"{mean(found, cases, name) / 5:,.0f}" for name in ("cheats GPU-h", "cheats in the lane")]
            cells.append(worst(found, cases, "debug", "p90"))
        rows.append([how, rule, *cells])
    header = "asks for | rule | crowd: GPU-hours | in the lane | others' debug p90 | lab: GPU-hours | in the lane"
    return table(f"{header} | others' debug p90", rows)


def many_table(found: Found) -> str:
    rows = [
        [str(cheats), str(lane), most(allowance), *(worst(found, cases, "debug", name) for name in ("p50", "p90")),
         f"{mean(found, cases, 'cheats in the lane') / cheats / 7:.1f}"]
        for (cheats, lane, allowance), cases in MANY.items()
    ]  # fmt: skip
    return table("people who cheat | lane | allowance | others' debug p50 | p90 | each has of the lane a day", rows)


def old_table(found: Found) -> str:
    header = (
        "policy | debug p50 | p90 | over-used, p90 | others' wait, p50 | p90 | occupancy | impact | share error | "
        "Jain's index | no later than alone | GPU-hours lost"
    )
    parts = []
    for cluster in SIZES:
        rows = []
        for name in ("old-world", "fifo", "gpubudget"):
            cases = OLD[cluster, name]
            debug = [
                worst(found, cases, *which) for which in (("debug", "p50"), ("debug", "p90"), ("over-used", "p90"))
            ]
            others = [usual(found, cases, "others", which) for which in ("p50", "p90")]
            shares = [percent(found, cases, which) for which in ("occupancy", "impact", "share error")]
            rows.append([
                name, *debug, *others, *shares, f"{mean(found, cases, 'Jain'):.3f}",
                percent(found, cases, "no later than alone"), hours(found, cases, "lost GPU-h"),
            ])  # fmt: skip
        parts.append(f"{LABEL[cluster]}:\n\n{table(header, rows)}")
    return "\n\n".join(parts)


def programs_table(found: Found) -> str:
    parts = []
    for cluster in SIZES:
        old, new = (OLD[cluster, name] for name in ("old-world", "gpubudget"))
        names = list(dict.fromkeys(name for case in old for name in found[case]["programs"]))
        rows = [
            [name, *(f"{mean(found, cases, 'programs', name):.0%}" for cases in (old, new)),
             *(usual(found, cases, "program waits", name) for cases in (old, new))]
            for name in names
        ]  # fmt: skip
        header = "program | got of its entitlement, old world | with budgets | wait p50, old world | with budgets"
        parts.append(f"{LABEL[cluster]}:\n\n{table(header, rows)}")
    return "\n\n".join(parts)
