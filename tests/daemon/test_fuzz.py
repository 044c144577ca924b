"""Whatever stands in a body or a query, the daemon answers with success or a problem, never with a fault of its own."""

from typing import Any
from urllib.parse import quote

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.daemon.harness import Api, Daemon, put_body, small_tree

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**31), 10**31) | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
BODIES: list[tuple[str, str, dict[str, Any]]] = [
    (
        "POST",
        "/v1/workloads",
        {"budget": "lang/a", "gpus": 1, "hosts": 1, "pools": ["h100"], "min_runtime": "1h", "max_runtime": "2h",
         "debug": False, "resumable": True, "priority": 0, "retries": 0, "name": "x", "command": ["a"],
         "env": {"A": "b"},
         "cwd": "/tmp"},
    ),
    ("POST", "/v1/workloads", {"workloads": [{"gpus": 1, "command": ["a"]}]}),
    ("POST", "/v1/workloads/w000001/move", {"budget": "lang/b"}),
    ("PUT", "/v1/budgets", put_body(small_tree(), "c1")),
    ("POST", "/v1/tokens", {"name": "x", "role": "user", "host": None}),
    ("POST", "/v1/hosts/h1/drain", {"reason": "x", "hold": True}),
    (
        "POST",
        "/v1/agents/h9/sync",
        {"pool": "b200", "gpus": 8, "boot_id": "b", "gpu_models": ["x"],
         "attempts": [{"workload": "w000001", "attempt": 1, "state": "running", "exit_code": 0, "signalled": False}],
         "health": [{"name": "a", "ok": True, "message": ""}],
         "repair": {"token": "t", "state": "done", "step": "", "message": ""},
         "checkpoints": [{"workload": "w000001", "attempt": 1, "at_ms": 1}],
         "chunks": [{"request": "1", "data_b64": "", "next_offset": 0, "end": True}]},
    ),
]  # fmt: skip


def places(value: object, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths of all values inside a JSON value."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [found for key, item in inner for found in ((*path, key), *places(item, (*path, key)))]


def replaced(value: Any, path: tuple[Any, ...], new: object) -> Any:  # noqa: ANN401 - any JSON
    """A copy with another value at one place."""
    if not path:
        return new
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = replaced(copy[path[0]], path[1:], new)
    return copy


@given(data=st.data())
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_body_is_answered_by_a_fault(still: Daemon, callers: dict[str, Api], data: st.DataObject) -> None:
    """A sound body with anything at one place of it."""
    assert still.url
    method, path, body = data.draw(st.sampled_from(BODIES))
    place = data.draw(st.sampled_from(places(body)))
    changed = replaced(body, place, data.draw(JSON))
    status, found, _ = callers["agent" if "sync" in path else "admin"].send(method, path, changed)
    assert status < 500, (status, found)


@given(text=st.text(max_size=30), name=st.sampled_from(["after", "limit", "kind", "state", "owner", "budget"]))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_query_is_answered_by_a_fault(callers: dict[str, Api], text: str, name: str) -> None:
    """Anything in a parameter or a path."""
    for path in (f"/v1/workloads?{name}={quote(text)}", f"/v1/events?{name}={quote(text)}", f"/v1/hosts/{quote(text)}"):
        assert callers["admin"].send("GET", path)[0] < 500
