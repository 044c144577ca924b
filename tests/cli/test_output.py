"""Tables and the forms for programs."""

from __future__ import annotations

import json

import pytest
import yaml

from gpubudget.cli.output import (
    Column,
    Format,
    ago,
    gpus,
    plain,
    printable,
    rendered,
    rfc3339,
    share,
    table,
    with_rfc3339,
)

COLUMNS = [
    Column("NAME", lambda row: row["name"]),
    Column("GPUS", lambda row: row["gpus"], right=True),
    Column("OWNER", lambda row: row.get("owner"), wide=True),
]
ROWS = [{"name": "h1", "gpus": 8}, {"name": "a-longer-one", "gpus": 128, "owner": "bob"}]


def test_a_table_is_aligned() -> None:
    """Columns stand under capital headers, two spaces apart; numbers to the right; no spaces at the line's end."""
    assert rendered({}, ROWS, COLUMNS, Format.TABLE) == (
        "NAME          GPUS\n"
        "h1               8\n"
        "a-longer-one   128"
    )  # fmt: skip
    assert rendered({}, ROWS, COLUMNS, Format.WIDE).splitlines()[1:] == [
        "h1               8  -",
        "a-longer-one   128  bob",
    ]


def test_an_empty_table_has_its_headers() -> None:
    """A table without rows still says what it would show."""
    assert rendered({}, [], COLUMNS, Format.TABLE) == "NAME  GPUS"


def test_wide_characters_keep_the_columns() -> None:
    """Characters that take two columns are counted as two, and accents as none."""
    rows = [{"name": "東京", "gpus": 1}, {"name": "e\u0301a", "gpus": 2}]
    assert table(rows, COLUMNS[:2]).splitlines() == ["NAME  GPUS", "東京     1", "e\u0301a       2"]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "-"),
        ("", "-"),
        ([], "-"),
        (0, "0"),
        (["a", "b"], "a,b"),
        ("red\x1b[31m", "red\\x1b[31m"),
        ("two\nlines", "two\\nlines"),
        ("right\u202eleft", "right\\u202eleft"),
    ],
)
def test_cells(value: object, text: str) -> None:
    """Nothing is a dash, lists are joined, and characters that move the cursor are shown as what they are."""
    assert plain(value) == text


def test_text_of_several_lines_keeps_its_lines() -> None:
    """Line ends stay, other control characters do not."""
    assert printable("one\n\ntwo\x07") == "one\n\ntwo\\x07"


def test_forms_for_programs() -> None:
    """JSON and YAML are the API's whole answer, jsonl one row a line, name one name a line."""
    answer = {"hosts": ROWS, "commit": "é"}
    assert json.loads(rendered(answer, ROWS, COLUMNS, Format.JSON)) == answer
    assert yaml.safe_load(rendered(answer, ROWS, COLUMNS, Format.YAML)) == answer
    assert [json.loads(line) for line in rendered(answer, ROWS, COLUMNS, Format.JSONL).splitlines()] == ROWS
    assert rendered(answer, ROWS, COLUMNS, Format.NAME) == "h1\na-longer-one"


def test_times_stand_twice() -> None:
    """Each moment in milliseconds has its RFC 3339 form beside it, at any depth; durations do not."""
    given = {"w": [{"started_ms": 1_500, "ended_ms": None, "min_runtime_ms": 3_600_000}]}
    assert with_rfc3339(given) == {
        "w": [
            {
                "started_ms": 1_500,
                "started": "1970-01-01T00:00:01.500Z",
                "ended_ms": None,
                "ended": None,
                "min_runtime_ms": 3_600_000,
            }
        ]
    }


def test_moments() -> None:
    """A moment is told by its distance in a table, and in full for programs, also beyond the calendar."""
    assert ago(1_000, now=311_000) == "5m10s"
    assert ago(3_600_000, now=0) == "in 1h"
    assert ago(None) == "-"
    assert rfc3339(10**18) == str(10**18)


def test_shares_and_gpus() -> None:
    """Exact fractions of the API are rounded only where they are shown."""
    assert (share("1/3"), share(None)) == ("33.3%", "-")
    assert (gpus("88/3"), gpus("16/1"), gpus(None)) == ("29.3", "16.0", "-")
