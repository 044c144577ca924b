"""Bad input of every kind, in every place: refused where it stands, and never taken for something else."""

from __future__ import annotations

import gzip
import unicodedata
from collections.abc import Callable

import pytest

from gpubudget.gitops.diagnostics import Diagnostic, to_text
from gpubudget.gitops.load import LoadResult
from gpubudget.gitops.yamlfile import MAX_DEPTH

Load = Callable[..., LoadResult]

CLUSTER = {
    "name": "lab",
    "timezone": "UTC",
    "pools.h100.hosts": "16",
    "pools.h100.gpus_per_host": "8",
    "policy.lookback": "7d",
    "policy.max_min_runtime": "8h",
    "policy.rebalance_interval": "60s",
    "policy.grace_period": "30s",
    "policy.failed_soon": "10m",
    "policy.preempt_backoff": "10m",
    "policy.max_preempt_backoff": "8h",
    "policy.debug.gpus": "8",
    "policy.debug.max_gpus": "8",
    "policy.debug.max_runtime": "15m",
    "policy.debug.per_person": "1",
    "policy.debug.allowance": "4h",
}
BUDGET = {
    "title": "Lab",
    "managers.-": "ines",
    "members.-": "ines",
    "children.a.share.default": "5%",
    "children.a.share.h100": "6%",
    "children.a.title": "A",
    "children.a.managers.-": "x",
    "children.a.members.-": "x",
    "children.a.previously": "old/a",
    "children.a.changes.-.share": "7%",
    "children.a.changes.-.from": "2026-12-01",
    "children.a.changes.-.until": "2027-01-15",
}
PLACES = [("cluster.yaml", place) for place in CLUSTER] + [("budget.yaml", place) for place in BUDGET]
SCALARS = {
    "nothing": "",
    "null": "~",
    "truth": "true",
    "minus one": "-1",
    "zero": "0",
    "decimal": "0.5",
    "octal": "010",
    "hexadecimal": "0x1F",
    "sexagesimal": "12:30",
    "underscored": "1_000",
    "exponent": "1e3",
    "infinite": ".inf",
    "no number": ".nan",
    "huge": "9" * 60,
    "large": "9" * 39,
    "empty text": '""',
    "blank": '" "',
    "list": "[]",
    "mapping": "{}",
    "nested": "[[x]]",
    "upper case": "NO!",
    "accent": "'é '",
    "date": "2026-13-45",
    "alias": "*x",
    "anchor": "&x y",
    "tag": "!!str x",
    "unlimited": "Unlimited",
    "star": "'*'",
    "several lines": '"a\\nb"',
    "minus percent": "-1%",
    "share without sign": "50",
    "wide digits": "\uff15\uff10%",
    "long": "x" * 5_000,
}
WHOLE = {"hosts", "gpus_per_host", "gpus", "per_person"}
NAMES = {"name", "managers", "members", "previously"}
TITLE = {"upper case", "accent", "blank", "date", "unlimited", "star", "minus percent", "wide digits"}


def is_right(key: str, scalar: str) -> bool:
    """Whether a value is right in a place all the same: a title may be any line of text, and digits are a name."""
    return (
        (key == "title" and scalar in TITLE)
        or (key in NAMES and scalar == "date")
        or (key in WHOLE and scalar == "share without sign")
        or (key in {"grace_period", "failed_soon", "preempt_backoff"} and scalar == "zero")
    )


def written(values: dict[str, str], kind: str) -> str:
    """A file with these values, one in each line."""
    lines = [f"kind: {kind}"]
    open_: list[str] = []
    for place, value in values.items():
        parts = place.split(".")
        shared = next(
            (i for i, (a, b) in enumerate(zip(parts, open_, strict=False)) if a != b), min(len(parts), len(open_))
        )
        if "-" in parts[:-1] and shared > parts.index("-"):  # a further key of the same item of a list
            lines.append("  " * (len(parts) - 1) + f"{parts[-1]}: {value}")
        else:
            for depth in range(shared, len(parts)):
                if parts[depth] == "-":
                    continue
                dash = depth and parts[depth - 1] == "-"
                end = f" {value}" if depth == len(parts) - 1 else ""
                lines.append("  " * (depth - bool(dash)) + ("- " if dash else "") + f"{parts[depth]}:{end}")
            if parts[-1] == "-":
                lines.append("  " * (len(parts) - 1) + f"- {value}")
        open_ = parts
    return "\n".join(lines) + "\n"


def with_value(load: Load, file: str, place: str, value: str) -> tuple[LoadResult, int]:
    """The result for a sound tree with another value in one place, and the line in which that place is."""
    cluster, budget = dict(CLUSTER), dict(BUDGET)
    (cluster if file == "cluster.yaml" else budget)[place] = value
    files = {"cluster.yaml": written(cluster, "Cluster"), "budget.yaml": written(budget, "Budget")}
    marked = written((cluster if file == "cluster.yaml" else budget) | {place: "@here"}, "x")
    return load(files), marked[: marked.index("@here")].count("\n") + 1


def test_the_tree_that_is_spoilt_here_is_sound(load: Load) -> None:
    """What is put in a place is the only thing that is wrong."""
    assert [found for found in with_value(load, "budget.yaml", "title", "Lab")[0].diagnostics if found.is_error] == []


@pytest.mark.parametrize(("file", "place"), PLACES, ids=[place for _, place in PLACES])
def test_another_scalar_is_refused_in_its_line(load: Load, file: str, place: str) -> None:
    """In each place each value of another kind, spelling or size is one problem there, or it is right there."""
    key = place.removesuffix(".-").rpartition(".")[2]
    for name, value in SCALARS.items():
        result, line = with_value(load, file, place, value)
        right = is_right(key, name)
        errors = [found for found in result.diagnostics if found.is_error]
        assert bool(errors) != right, (name, value)
        for found in errors:
            lines = {found.position.line, *(place.position.line for place in found.related)}
            assert line in lines or found.rule in {"yaml-syntax", "policy-bounds"}, (name, found)
            assert found.hint, (name, found)


@pytest.mark.parametrize("value", ["-1", "-1%", "unlimited", "inf", "'*'", "none", "max", ".inf", "0"])
def test_no_number_or_word_stands_for_unlimited(load: Load, value: str) -> None:
    """There are no sentinels: what is no share or no count of hosts is refused (gitops.md: KAI#1881)."""
    assert load({"budget.yaml": f"kind: Budget\nchildren: {{a: {value}}}\n"}).tree is None
    assert (
        load({"cluster.yaml": f"kind: Cluster\npools: {{h100: {{hosts: {value}, gpus_per_host: 8}}}}\n"}).tree is None
    )


def test_absent_is_not_zero(load: Load) -> None:
    """A share, a size of a pool or an end of a change that is left out, or empty, is an error (volcano#5634)."""
    changes = "[{from: 2026-12-01, share: 5%}]"
    for children in ("a:", "a: {}", "a: {share: }", "a: {share: {b200: 5%}}", f"a: {{share: 5%, changes: {changes}}}"):
        assert load({"budget.yaml": f"kind: Budget\nchildren: {{{children}}}\n"}).tree is None, children
    for pool in ("", "{}", "{hosts: 5}", "{gpus_per_host: 8}", "{hosts: , gpus_per_host: 8}"):
        assert load({"cluster.yaml": f"kind: Cluster\npools: {{h100: {pool}}}\n"}).tree is None, pool


@pytest.mark.parametrize(
    "name", ["Olmo", "OLMO", "olmó", "o\u0301lmo", "ölmo", "\u043elmo", "olmo_2", "ol mo", "-a", "a.b", "a/b", "x" * 64]
)
def test_names_that_differ_in_case_or_looks_only_cannot_be(load: Load, name: str) -> None:
    """Upper case, accents, letters of other scripts and separators are no names (gitops.md: fleetdm#33557)."""
    [found] = load(
        {"budget.yaml": f"kind: Budget\nmanagers: [i]\nmembers: [i]\nchildren: {{{name}: 5%}}\n"}
    ).diagnostics
    assert found.rule == "name-syntax"


SHARES = (
    "50 % | 50%% | %50 | % | 50.% | .5% | +50% | -0% | 5e1% | 1_0% | 0x32% | 1,5% | \u096b\u0966% | \xbd"
    " | 50\uff05 | 1 / 3 | 1/ 3 | 1/3/5 | -1/3 | +1/3 | 1/-3 | 1/3% | 1.0/3 | 1/0 | 0/0 | 4/3"
    " | 100.000000000001% | 101% | 1000% | 12345/67890 | 0.1234567890123% | half | 1:3 | 0.5 | 50 | 1e-1"
    " | nan% | \u221e | "
)


@pytest.mark.parametrize("share", SHARES.split(" | "))
def test_other_spellings_of_shares_are_refused(load: Load, share: str) -> None:
    """Only 50%, 12.5% and 1/3 are shares: nothing that another program might read as another number."""
    for text in (share, f'"{share}"'):
        found = load({"budget.yaml": f"kind: Budget\nchildren:\n  a: {text}\n"})
        assert found.tree is None


DAYS = (
    "2026-12-1 | 26-12-01 | 2026/12/01 | 01.12.2026 | 12/01/2026 | 2026-12-01T00:00:00Z | 2026-12-01 00:00"
    " | 20261201 | 2026-W49-2 | 2026-335 | +2026-12-01 | -2026-12-01 | \uff12\uff10\uff12\uff16-12-01"
    " | 2026\u201012\u201001 | 2026-02-29 | 2100-02-29 | 2026-04-31 | 2026-00-10 | 2026-10-00 | 2026-13-01"
    " | 0000-01-01 | 9999-12-31 | 1e3-01-01 | today | 1796083200"
)


@pytest.mark.parametrize("day", DAYS.split(" | "))
def test_other_spellings_of_dates_and_days_that_are_not_are_refused(load: Load, day: str) -> None:
    """Only YYYY-MM-DD of a day in the calendar is a date (gitops.md: pyyaml#382, jsonschema#945)."""
    for text in (day, f'"{day}"'):
        change = f"{{from: {text}, until: 2027-12-31, share: 6%}}"
        found = load({"budget.yaml": f"kind: Budget\nchildren:\n  a: {{share: 5%, changes: [{change}]}}\n"})
        assert found.tree is None
        assert {problem.rule for problem in found.diagnostics} <= {
            "date-syntax",
            "ambiguous-number",
            "yaml-syntax",
            "date-order",
        }


@pytest.mark.parametrize(
    "path", ["/", "/a", "a/", "a//b", "./a", "../a", "a/../b", "A/b", "a b", "a\\\\b", "é", "a:b", "*", "x" * 1024, ""]
)
def test_other_spellings_of_paths_are_refused(load: Load, path: str) -> None:
    """A former path is names joined by single slashes, and nothing that a file system would resolve."""
    child = f'{{share: 5%, members: [x], previously: "{path}"}}'
    [found] = load(
        {"budget.yaml": f"kind: Budget\nmanagers: [i]\nmembers: [i]\nchildren: {{a: {child}}}\n"}
    ).diagnostics
    assert found.rule == "previously-syntax"


@pytest.mark.parametrize(
    "encoding",
    [
        "utf-16",
        "utf-16-le",
        "utf-16-be",
        "utf-32",
        "utf-32-le",
        "utf-32-be",
        "latin-1",
        "cp1252",
        "shift_jis",
        "cp037",
        "utf-8-sig",
    ],
)
def test_other_encodings_are_refused(load: Load, encoding: str) -> None:
    """A file in another encoding is one sentence that says so, and is not read as something else."""
    text = "kind: Budget\ntitle: 日本\n" if encoding == "shift_jis" else "kind: Budget\ntitle: Zürich\n"
    data = text.encode(encoding)
    found = load({"budget.yaml": data, "cluster.yaml": data}).diagnostics
    assert [problem.rule for problem in found if problem.rule == "file-encoding"] == ["file-encoding"] * 2
    assert len(found) <= 4


@pytest.mark.parametrize(
    "data", [gzip.compress(b"kind: Budget\n"), b"PK\x03\x04", b"\x7fELF\x02", b"\x89PNG\r\n\x1a\n", b"\x00"]
)
def test_files_that_are_no_text_are_refused(load: Load, data: bytes) -> None:
    """An archive, a program or a picture under the name of a budget is a problem that can be printed."""
    result = load({"budget.yaml": data})
    assert result.tree is None
    assert all(to_text(found).isprintable() for found in result.diagnostics if "\n" not in to_text(found))


UNSEEN = [
    code
    for code in range(0x110000)
    if unicodedata.category(chr(code)) in {"Cc", "Cf", "Cs", "Zl", "Zp"}
    and code not in (0x09, 0x0A, 0x0D, 0x200C, 0x200D)
    and not 0x600 <= code <= 0x8FF
    and not 0x110BD <= code <= 0x1BCA3
]
"""All controls, formats, surrogates and separators, but joiners and the signs of scripts that are seen."""


def test_every_character_that_cannot_be_seen_is_refused(load: Load) -> None:
    """Raw and as an escape, in a title and in a name, each character without a look of its own is an error."""
    for code in [
        *UNSEEN[::7],
        0x61C,
        0xAD,
        0x115F,
        0x3164,
        0xFFA0,
        0x034F,
        0x180B,
        0xE0041,
        0xFDD0,
        0xFFFE,
        0x1FFFF,
        0x10FFFF,
    ]:
        escape = f"\\U{code:08X}"
        raw = [] if 0xD800 <= code <= 0xDFFF else [chr(code)]
        for text in [*raw, escape]:
            result = load({"budget.yaml": f'kind: Budget\ntitle: "a{text}b"\n'})
            assert {found.rule for found in result.diagnostics} & {"control-character", "yaml-syntax"}, hex(code)
            assert result.tree is None


@pytest.mark.parametrize(
    "text",
    [
        "\u0646\u06cc\u0645\u200c\u0641\u0627\u0635\u0644\u0647",
        "👩\u200d🔬",
        "❤\ufe0f",
        "\u0915\u094d\u200d\u0937",
        "a\tb",
    ],
)
def test_titles_in_every_script_are_fine(load: Load, text: str) -> None:
    """What writing needs, such as joiners, is no problem in a title."""
    result = load({"budget.yaml": f'kind: Budget\nmanagers: [i]\nmembers: [i]\ntitle: "{text}"\n'})
    assert result.diagnostics == ()
    assert result.tree is not None
    assert result.tree.root.title == text


@pytest.mark.parametrize("depth", [MAX_DEPTH + 1, 100, 10_000])
@pytest.mark.parametrize("level", ["[x]", "{a: x}", "- x", "? x"])
def test_depth_is_refused_whatever_it_is_made_of(load: Load, depth: int, level: str) -> None:
    """Lists, mappings, dashes and long keys nested too deeply end at a bound, not in a stack."""
    before, after = level.split("x")
    text = before * depth + "x" + after * depth
    result = load({"budget.yaml": f"kind: Budget\ntitle:\n  {text}\n"})
    assert result.tree is None
    assert {found.rule for found in result.diagnostics} <= {"yaml-depth", "yaml-syntax", "yaml-key"}


@pytest.mark.parametrize(
    ("lines", "rule"),
    [
        ("title: " + "x" * 201, "title-syntax"),
        ("members: [" + ", ".join(f"p{i}" for i in range(1001)) + "]", "out-of-bounds"),
        (
            "children: {a: {share: 1%, changes: ["
            + ", ".join(["{from: 2026-12-01, until: 2026-12-02, share: 0%}"] * 1001)
            + "]}}",
            "out-of-bounds",
        ),
        ("children: {a: {share: {default: 1%, " + ", ".join(f"p{i}: 1%" for i in range(2000)) + "}}}", "pool-unknown"),
    ],
)
def test_sizes_are_bounded(load: Load, lines: str, rule: str) -> None:
    """Texts, lists of people, of changes and of pools have bounds that the message names."""
    assert rule in {found.rule for found in load({"budget.yaml": f"kind: Budget\n{lines}\n"}).diagnostics}


def test_at_most_sixteen_pools(load: Load) -> None:
    """A cluster with more is refused, and nothing is summed for pools without end."""
    pools = ", ".join(f"p{i}: {{hosts: 1, gpus_per_host: 8}}" for i in range(17))
    found: tuple[Diagnostic, ...] = load({"cluster.yaml": f"kind: Cluster\npools: {{{pools}}}\n"}).diagnostics
    assert [problem.rule for problem in found] == ["out-of-bounds"]
