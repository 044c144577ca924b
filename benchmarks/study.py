"""The tuning study of ``docs/tuning.md``: plays its runs with the simulator, and writes its tables and pictures anew.

    python benchmarks/study.py                  all parts: an hour of one core
    python benchmarks/study.py lane gaming      these parts
    python benchmarks/study.py --no-write       print the tables, and leave the page as it is

Finished runs are kept in a file (``--runs``), and the same command goes on from there.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.tuning import pictures, tables
from benchmarks.tuning.cases import played
from benchmarks.tuning.grids import (
    ALLOWANCE,
    DEMAND,
    DEMAND_LARGE,
    FILLED,
    GAMING,
    LANE,
    MANY,
    OLD,
    WINDOW,
    WINDOW_LARGE,
)
from gpubudget import charts

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "tuning.md"
PICTURES = ROOT / "docs" / "pictures"


@dataclass(frozen=True, slots=True)
class Part:
    """A part of the study: its runs, its table, and its picture if it has one."""

    runs: Iterable[tables.Cases]
    table: Callable[[tables.Found], str]
    picture: Callable[[tables.Found], str] | None = None


PARTS = {
    "lane": Part(LANE.values(), tables.lane_table, pictures.waits_picture),
    "filled": Part(FILLED.values(), tables.filled_table),
    "demand": Part(DEMAND.values(), tables.demand_table),
    "large": Part([*(LANE["lab", lane] for lane in (8, 16, 32)), *DEMAND_LARGE.values()], tables.large_table),
    "gaming": Part(GAMING.values(), tables.gaming_table, pictures.gaming_picture),
    "many": Part(MANY.values(), tables.many_table),
    "allowance": Part(ALLOWANCE.values(), tables.allowance_table),
    "window": Part(WINDOW.values(), tables.window_table),
    "one-by-one": Part(WINDOW_LARGE.values(), tables.window_large_table, pictures.longest_picture),
    "old-world": Part(OLD.values(), tables.old_table),
    "programs": Part(OLD.values(), tables.programs_table, pictures.programs_picture),
}


def put(page: str, name: str, text: str) -> str:
    """The page with a part's table between its marks."""
    marks = f"<!-- study: {name} -->", f"<!-- end of {name} -->"
    pattern = re.compile(f"{re.escape(marks[0])}.*?{re.escape(marks[1])}", re.DOTALL)
    return pattern.sub(lambda _: f"{marks[0]}\n{text}\n{marks[1]}", page)


def main() -> None:
    parser = argparse.ArgumentParser(description="Play the tuning study, and write its tables and pictures.")
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], help="which parts (default: all)")
    parser.add_argument("--runs", type=Path, default=ROOT / "study.jsonl", help="where finished runs are kept")
    parser.add_argument("--processes", type=int, default=len(os.sched_getaffinity(0)), help="runs at once")
    parser.add_argument("--no-write", action="store_true", help="leave the page as it is")
    options = parser.parse_args()
    if "GPUBUDGET_SHARED" not in os.environ:
        sys.exit("GPUBUDGET_SHARED has to name the folder in which traces/ is")
    parts = {name: PARTS[name] for name in options.parts or PARTS}
    cases = [case for part in parts.values() for cases in part.runs for case in cases]
    found = played(list(dict.fromkeys(cases)), options.runs, options.processes)
    for name, part in parts.items():
        text = part.table(found)
        print(f"== {name}\n\n{text}\n")
        if not options.no_write:
            PAGE.write_text(put(PAGE.read_text(), name, text))
            if part.picture is not None:
                PICTURES.mkdir(exist_ok=True)
                (PICTURES / f"tuning-{name}.svg").write_text(charts.standalone(part.picture(found)))


if __name__ == "__main__":
    main()
