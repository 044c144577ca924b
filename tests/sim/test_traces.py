"""Reading traces: CSV and SWF, packed or not, and one clear sentence for each thing that can be wrong."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpubudget.errors import InvalidInputError
from gpubudget.sim.submission import Ending
from gpubudget.sim.traces import TraceRow, read_trace

HEADER = "job_id,submit_s,user,group,gpus,duration_s,state,gpu_type\n"
SHARED = os.environ.get("GPUBUDGET_SHARED")


def write(tmp_path: Path, text: str | bytes, name: str = "trace.csv") -> Path:
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_a_row_is_read_as_it_stands(tmp_path: Path) -> None:
    """Seconds become milliseconds; what the trace does not say stays empty; rows come in order of time."""
    trace = read_trace(write(tmp_path, HEADER + "j2,20,uma,vc1,8,3600,CANCELED,V100\nj1,10,,,1,60,,\n"))
    assert trace.rows == (
        TraceRow(3, "j1", 10_000, "", "", 1, 60_000, None),
        TraceRow(2, "j2", 20_000, "uma", "vc1", 8, 3_600_000, Ending.CANCELLED),
    )
    assert (trace.name, trace.bad_rows) == ("trace.csv", ())


@pytest.mark.parametrize(
    ("state", "ending"),
    [
        ("COMPLETED", Ending.FINISHED),
        ("Pass", Ending.FINISHED),
        ("Killed", Ending.CANCELLED),
        ("NODE_FAIL", Ending.FAILED),
        ("-1", None),
    ],
)
def test_the_words_of_other_clusters_are_known(tmp_path: Path, state: str, ending: Ending | None) -> None:
    """How a workload ended, as Slurm, Philly and Helios say it."""
    assert read_trace(write(tmp_path, f"{HEADER}j1,0,,,1,60,{state},\n")).rows[0].ending is ending


def test_a_columns_name_has_its_unit(tmp_path: Path) -> None:
    """Minutes and hours are read as well as seconds, and columns may stand in any order."""
    trace = read_trace(write(tmp_path, "gpus,duration_h,submit_min\n2,1.5,3\n"))
    assert trace.rows == (TraceRow(2, "line2", 180_000, "", "", 2, 5_400_000, None),)


def test_a_packed_trace_is_the_same(tmp_path: Path) -> None:
    """Whatever its name is."""
    text = (HEADER + "j1,10,,,1,60,,\n").encode()
    assert read_trace(write(tmp_path, gzip.compress(text), "x")).rows == read_trace(write(tmp_path, text)).rows


@pytest.mark.parametrize(
    ("row", "why"),
    [
        ("j2,-5,,,1,60,,", "a negative time: it is submitted -5 s"),
        ("j2,5,,,1,-60,,", "a negative time: it runs for -60 s"),
        ("j2,5,,,0,60,,", "it asks for 0 GPUs"),
        ("j2,soon,,,1,60,,", "submit_s is 'soon', not a number"),
        ("j2,5,,,half,60,,", "gpus is 'half', not a whole number"),
        ("j2,5,,,1,nan,,", "duration_s is 'nan', not a number"),
        ("j2,1e999,,,1,60,,", "submit_s is '1e999', not a number"),
        ("j2,1e300,,,1,60,,", "a time of more than a hundred years"),
        ("j2,5,,,1,60", "it has 6 cells, not 8"),
        ("j1,5,,,1,60,,", "the id 'j1' stands on line 2 already"),
    ],
)
def test_a_row_that_cannot_be_is_left_out_and_named(tmp_path: Path, row: str, why: str) -> None:
    """With its line, and why; the others are read."""
    trace = read_trace(write(tmp_path, f"{HEADER}j1,1,,,1,60,,\n{row}\nj3,9,,,1,60,,\n"))
    assert [(bad.line, bad.why) for bad in trace.bad_rows] == [(3, why)]
    assert [found.id for found in trace.rows] == ["j1", "j3"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        ("\n  \n", "is empty"),
        (HEADER, "has a header and no rows"),
        ("a,b\n1,2\n", "has no column 'submit_s'; its first line is: a, b"),
        ("submit_s,duration_s\n1,2\n", "has no column 'gpus'"),
        ("submit_s,duration_moons,gpus\n1,2,3\n", "has a column 'duration_moons', and 'moons' is not a unit of time"),
        (HEADER + "j1,-5,,,1,60,,\n", "has no sound row; line 2: a negative time: it is submitted -5 s"),
        (b"\x00\x01\x02", "is binary, not a text"),
        (b"\x80\x81\xff\xfe", "is binary, not a text"),
        (b"x" * (17 << 20), "line 1 is longer than 16 MB"),
        (HEADER.encode() + b"x" * (17 << 20), "line 2 is longer than 16 MB"),
        (b"; swf\n" + b"x" * (17 << 20), "line 2 is longer than 16 MB"),
        (HEADER.encode() + b"j1,\0", "is binary, not a text"),
        (HEADER.encode() + b"j1,\xff\n", "is binary, not a text"),
        (gzip.compress(b"x" * 9999)[:40], "is damaged"),
        ('{"at": 1}\n', "is an event log, not a trace of another cluster"),
    ],
)
def test_what_is_no_trace_is_told_in_one_sentence(tmp_path: Path, text: str | bytes, message: str) -> None:
    """The sentence names the file, and the hint says what a trace looks like."""
    path = write(tmp_path, text)
    with pytest.raises(InvalidInputError) as told:
        read_trace(path)
    assert told.value.message.startswith(f"{path} {message}")
    assert "\n" not in told.value.message
    assert told.value.hint


@pytest.mark.parametrize(("name", "message"), [("missing.csv", "there is no file"), ("", "cannot be read")])
def test_a_file_that_is_not_there_is_told(tmp_path: Path, name: str, message: str) -> None:
    """The same for a folder."""
    with pytest.raises(InvalidInputError, match=message):
        read_trace(tmp_path / name)


def test_swf_is_read(tmp_path: Path) -> None:
    """Comments, processors asked for where none are known, users and groups by number, and the status."""
    text = (
        "; Version: 2.2\n"
        "1 0 -1 1451 128 -1 -1 -1 -1 -1 1 1 1 -1 -1 -1 -1 -1\n"
        "2 60 5 100 -1 -1 -1 16 -1 -1 5 2 -1 -1 -1 -1 -1 -1\n"
        "3 70 5 -1 16 -1 -1 16 -1 -1 5 2 -1 -1 -1 -1 -1 -1\n"
        "4 80 what\n"
        "5 90 5 --1 16 -1 -1 16 -1 -1 5 2 -1 -1 -1 -1 -1 -1\n"
        f"6 90 5 {'9' * 400} 16 -1 -1 16 -1 -1 5 2 -1 -1 -1 -1 -1 -1\n"
    )
    trace = read_trace(write(tmp_path, text, "x.swf"))
    assert trace.rows == (
        TraceRow(2, "1", 0, "u1", "g1", 128, 1_451_000, Ending.FINISHED),
        TraceRow(3, "2", 60_000, "u2", "", 16, 100_000, Ending.CANCELLED),
    )
    assert [(bad.line, bad.why) for bad in trace.bad_rows] == [
        (4, "its run time is not known (-1)"),
        *((line, "it is not 18 numbers") for line in (5, 6, 7)),
    ]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=150, deadline=None)
@given(st.binary(max_size=200), st.sampled_from([b"", HEADER.encode(), b"; swf\n", b"\x1f\x8b"]))
def test_no_file_gives_a_traceback(tmp_path: Path, rest: bytes, head: bytes) -> None:
    """Any bytes are a trace, or one sentence."""
    path, told = write(tmp_path, head + rest), "\n"
    try:
        told = read_trace(path).name
    except InvalidInputError as error:
        told = error.message
    assert "\n" not in told


@pytest.mark.skipif(SHARED is None, reason="GPUBUDGET_SHARED is not set: the public traces are not here")
@pytest.mark.parametrize(
    ("name", "rows", "groups"),
    [("philly28_704", 43_231, 12), ("helios_venus_2vc_users", 1_867, 2), ("nasa_ipsc_swf", 18_066, 2)],
)
def test_the_public_traces_are_read_whole(name: str, rows: int, groups: int) -> None:
    """No row of them is bad."""
    trace = read_trace(Path(SHARED or "") / "traces" / f"{name}.csv.gz")
    assert (len(trace.rows), len(trace.bad_rows)) == (rows, 0)
    assert len({row.group for row in trace.rows}) == groups
