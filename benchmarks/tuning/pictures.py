"""The pictures of the study."""

from __future__ import annotations

from fractions import Fraction

from benchmarks.tuning.cases import NO_LIMIT, cheaters
from benchmarks.tuning.grids import (
    GAMING,
    LANE,
    LONGEST,
    OLD,
    PHILLY,
    WINDOW_LARGE,
)
from benchmarks.tuning.tables import Cases, Found, mean, values
from gpubudget import charts
from gpubudget.sim.eras import Shares
from gpubudget.sim.prepare import POOL
from gpubudget.units import DAY, HOUR, about_duration

WIDTH = 720


def range_of(found: Found, cases: Cases, group: str, name: str, note: str) -> charts.Range:
    """Waits of the seed where each quantile is the longest."""
    p50, p90, p99 = (max(values(found, cases, group, each)) for each in ("p50", "p90", "p99"))
    return charts.Range(name, note, p50, p90, p99)


def waits_picture(found: Found) -> str:
    """Debug waits with and without a lane."""
    rows = [
        range_of(found, LANE[cluster, lane], group, f"{name}, {f'lane of {lane}' if lane else 'no lane'}", group[:-5])
        for cluster, name, lanes in (("lab-88", "88", (0, 8)), (PHILLY, "224", (0, 8)), ("lab", "1,024", (0, 16)))
        for lane in lanes
        for group in ("under-used", "over-used")
    ]
    return charts.ranges(rows, WIDTH)


def gaming_picture(found: Found) -> str:
    """What a person in a crowd gets, each way, and his entitlement."""
    case = GAMING[True, "4 long", 1, 4 * HOUR][0]
    tree = case.scenario().tree
    shares, who = Shares(tree.root, POOL, 0), cheaters(tree, case.cheats)
    parts = sum(Fraction(shares.whole[budget], shares.scale) for _, budget in who)
    due = float(parts * 88 * 24 * case.days / len(who))
    names = {
        ("4 long", 4 * HOUR): "long work", ("4 pieces", 4 * HOUR): "ordinary pieces",
        ("8 chain", NO_LIMIT): "chain, no allowance", ("4 chain", 4 * HOUR): "chain, 4 h a day",
    }  # fmt: skip
    rows = []
    for (how, allowance), name in names.items():
        had = mean(found, GAMING[True, how, 1, allowance], "cheats GPU-h") / case.cheats
        css = "hue4" if "chain" in how else "hue1"
        rows.append(charts.Bullet(name, css, had, due, 0, f"{had:,.0f} GPU-hours, entitled to {due:,.0f}"))
    return charts.bullets(rows, WIDTH, "GPU-hours")


def programs_picture(found: Found) -> str:
    """What each program got, in parts of its entitlement."""
    rows = []
    names = found[OLD["lab", "gpubudget"][0]]["programs"]
    for program in names:
        for policy, css in (("old-world", "other"), ("gpubudget", "hue1")):
            got = 100 * mean(found, OLD["lab", policy], "programs", program)
            shown = f"{program}, {'old world' if policy == 'old-world' else 'budgets'}"
            rows.append(charts.Bullet(shown, css, got, 100, 0, f"{got:.0f}% of its entitlement"))
    return charts.bullets(rows, WIDTH, "% of the entitlement")


def longest_picture(found: Found) -> str:
    """Waits by the longest minimum runtime."""
    rows = [
        range_of(found, WINDOW_LARGE[cluster, 7 * DAY, longest], "others", name, about_duration(longest))
        for cluster, name in ((PHILLY, "224, Philly"), ("lab", "1,024"))
        for longest in LONGEST
        if (cluster, 7 * DAY, longest) in WINDOW_LARGE
    ]
    return charts.ranges(rows, WIDTH)
