"""What callers see: the answers of the API, and its refusals, which change nothing."""

import http.client
import json
from fractions import Fraction
from typing import Any

import pytest

from gpubudget.core import plain
from gpubudget.core.budget import DebugLane, Policy
from tests.daemon.harness import HOUR, Api, Daemon, FakeAgent, eventually, put_body, small_tree

JOB: dict[str, Any] = {"budget": "lang/a", "gpus": 4, "min_runtime": "1h", "command": ["train"]}


def problem(api: Api, method: str, path: str, body: object, status: int) -> dict[str, Any]:
    """The problem that a request is refused with; checks its form."""
    got, found, headers = api.send(method, path, body)
    assert got == status, (got, found)
    assert headers["content-type"] == "application/problem+json"
    assert found["status"] == status
    assert found["type"].startswith("urn:gpubudget:")
    assert found["detail"]
    assert "Traceback" not in found["detail"]
    return dict(found)


def test_a_workload_runs_from_submit_to_its_end(daemon: Daemon, agents: list[FakeAgent]) -> None:
    """A submitted workload starts on a host's agent and is finished when that reports exit code 0."""
    alice = daemon.user("alice")
    made = alice("POST", "/v1/workloads", {**JOB, "env": {"A": "b"}, "name": "first"})
    assert (made["state"], made["owner"], made["command"], made["name"]) == ("running", "alice", ["train"], "first")
    host = next(iter(made["attempt"]["placement"]))
    agent = next(each for each in agents if each.host == host)
    order = agent.sync()["run"][0]
    assert (order["command"], order["env"], order["gpus"], order["rank"]) == (["train"], {"A": "b"}, [0, 1, 2, 3], 0)
    agent.exit(made["id"])
    assert agent.sync()["run"] == []
    ended = alice("GET", f"/v1/workloads/{made['id']}")
    assert (ended["state"], ended["exit_code"], ended["attempts"], ended["attempt"]) == ("finished", 0, 1, None)
    eventually(lambda: not agent.sync()["forget"] and not agent.attempts)


def test_nothing_is_accepted_before_budgets_are_applied(bare: Daemon) -> None:
    """A submission without budgets in force is a conflict that says so."""
    found = problem(bare.user("alice"), "POST", "/v1/workloads", JOB, 409)
    assert found["detail"] == "no budgets have been applied yet"
    problem(bare.api(), "GET", "/v1/budgets/applied", None, 404)


BAD_JOBS: list[tuple[dict[str, Any], int, str]] = [
    ({"gpus": 0}, 400, "gpus is 0"),
    ({"gpus": -8}, 400, "gpus is -8"),
    ({"gpus": 10**30}, 400, "gpus is 1000000000000000000000000000000"),
    ({"gpus": True}, 400, "gpus is true, not a whole number"),
    ({"gpus": 1.5}, 400, "gpus is 1.5"),
    ({"gpus": "8"}, 400, 'gpus is "8"'),
    ({"gpus": None}, 400, "gpus is null"),
    ({"gpus": 24}, 422, "24 GPUs are more than pool h100 has: 2 hosts of 8 GPUs, 16 in all"),
    ({"gpus": 9}, 422, "9"),
    ({"hosts": 3, "gpus": 3}, 422, "3 hosts are more than pool h100 has: 2"),
    ({"min_runtime": "9h"}, 422, "a minimum runtime of 9h is over the limit of 8h"),
    ({"min_runtime": -1}, 400, "min_runtime is -1 ms"),
    ({"min_runtime": "soon"}, 400, "min_runtime 'soon' is not a duration"),
    ({"min_runtime": 10**30}, 400, "min_runtime is 1000000000000000000000000000000 ms"),
    ({"max_runtime": "1m"}, 400, "max_runtime (1m) is shorter than min_runtime (1h)"),
    ({"budget": "nowhere"}, 422, "there is no budget 'nowhere'"),
    ({"budget": "vision"}, 403, "alice is no member of budget vision (members: bob)"),
    ({"budget": "lang"}, 403, "alice is no member of budget lang (members: hanna)"),
    ({"budget": None}, 400, "needs a budget"),
    ({"pools": ["b200"]}, 422, "there is no pool 'b200'"),
    ({"pools": []}, 400, "pools is empty"),
    ({"pools": ["h100", "h100"]}, 400, "pools names h100 twice"),
    ({"priority": 1001}, 400, "priority is 1001; it may be -1000 to 1000"),
    ({"retries": 101}, 400, "retries is 101"),
    ({"command": []}, 400, "command is empty"),
    ({"command": "train"}, 400, 'command is "train", not a list'),
    ({"command": ["a\0b"]}, 400, "command[0] holds a NUL"),
    ({"command": ["x" * 140_000]}, 400, "command[0] has 140000 characters"),
    ({"command": ["x" * 4_000] * 40}, 400, "command and env have 160000 characters"),
    ({"env": {"1A": "x"}}, 400, "no environment variable"),
    ({"env": ["A=b"]}, 400, "env is"),
    ({"cwd": "here"}, 400, "cwd is 'here', not an absolute path"),
    ({"debug": True}, 422, "no debug lane"),
    ({"gpu": 4}, 400, "gpu is not a field"),
]


@pytest.mark.parametrize(("change", "status", "said"), BAD_JOBS, ids=[said for _, _, said in BAD_JOBS])
def test_a_bad_submission_is_refused_with_its_numbers(
    alice: Api, change: dict[str, Any], status: int, said: str
) -> None:
    """What is wrong, where and with which numbers; and nothing was submitted."""
    assert said in problem(alice, "POST", "/v1/workloads", {**JOB, **change}, status)["detail"]
    assert alice("GET", "/v1/workloads")["workloads"] == []
    assert alice("GET", "/v1/events?kind=submitted")["events"] == []


BAD_BODIES = [
    (b"", "not JSON"),
    (b"{", "not JSON"),
    (b"[]", "not a JSON object"),
    (b"\xff{}", "not UTF-8"),
    (b'{"gpus": 1, "gpus": 2, "command": ["a"]}', 'the key "gpus" twice'),
    (b'{"gpus": NaN, "command": ["a"]}', "NaN"),
    (b'{"gpus": 1' + b"0" * 5_000 + b', "command": ["a"]}', "more than 4,300 digits"),
    (b'{"gpus": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "nested too deeply"),
    (b'{"gpus": 1, "command": ["\\ud800"]}', "half of a character"),
]


@pytest.mark.parametrize(("body", "said"), BAD_BODIES, ids=[said for _, said in BAD_BODIES])
def test_a_body_that_is_no_json_is_refused(alice: Api, body: bytes, said: str) -> None:
    """Every way in which a body can fail to be plain JSON has its own sentence."""
    assert said in problem(alice, "POST", "/v1/workloads", body, 400)["detail"]


def test_a_body_over_the_limit_is_refused(daemon: Daemon) -> None:
    """More than 8 MB are not read."""
    found = problem(daemon.user("alice"), "POST", "/v1/workloads", b" " * (8 * 1024 * 1024 + 1), 413)
    assert "8388609" in found["detail"]


def test_a_batch_is_accepted_whole_or_not_at_all(daemon: Daemon) -> None:
    """One bad workload among many refuses all, and names its place."""
    alice = daemon.user("alice")
    found = problem(alice, "POST", "/v1/workloads", {"workloads": [JOB, {**JOB, "gpus": 99}]}, 422)
    assert "99 GPUs" in found["detail"]
    found = problem(alice, "POST", "/v1/workloads", {"workloads": [JOB, {**JOB, "gpus": 0}]}, 400)
    assert found["detail"].startswith("workloads[1].gpus is 0")
    problem(alice, "POST", "/v1/workloads", {"workloads": []}, 400)
    assert alice("GET", "/v1/workloads")["workloads"] == []
    made = alice("POST", "/v1/workloads", {"workloads": [JOB] * 3}, 201)["workloads"]
    assert [each["id"] for each in made] == ["w000001", "w000002", "w000003"]


def test_an_idempotency_key_submits_once(daemon: Daemon) -> None:
    """The same request under the same key is the same workload, also after a restart; another body is a conflict."""
    token = str(daemon.user("alice").token)
    alice = daemon.api(token)
    first = alice("POST", "/v1/workloads", JOB, 201, Idempotency_Key="k1")
    assert alice("POST", "/v1/workloads", JOB, 201, Idempotency_Key="k1")["id"] == first["id"]
    found = alice("POST", "/v1/workloads", {**JOB, "gpus": 1}, 409, Idempotency_Key="k1")
    assert "another body" in found["detail"]
    batch = alice("POST", "/v1/workloads", {"workloads": [JOB, JOB]}, 201, Idempotency_Key="k2")
    daemon.restart()
    alice = daemon.api(token)
    assert alice("POST", "/v1/workloads", JOB, 201, Idempotency_Key="k1")["id"] == first["id"]
    again = alice("POST", "/v1/workloads", {"workloads": [JOB, JOB]}, 201, Idempotency_Key="k2")
    assert [w["id"] for w in again["workloads"]] == [w["id"] for w in batch["workloads"]]
    assert daemon.user("bob")("POST", "/v1/workloads", {**JOB, "budget": "vision"}, 201, Idempotency_Key="k1")
    assert len(alice("GET", "/v1/workloads?owner=alice")["workloads"]) == 3


def test_unallocated_work_needs_no_budget(daemon: Daemon, agents: list[FakeAgent]) -> None:
    """Anybody may submit work without a minimum runtime and a budget; it may start, unprotected."""
    assert agents
    made = daemon.user("eve")("POST", "/v1/workloads", {"gpus": 1, "command": ["x"]}, 201)
    assert (made["budget"], made["min_runtime_ms"], made["attempt"]["allocated"]) == (None, 0, False)


def test_the_debug_lane_sets_the_longest_run_time(bare: Daemon) -> None:
    """A debug workload gets the lane's limits, and is refused over them."""
    policy = Policy(debug=DebugLane(4, max_gpus=2, max_runtime=60_000))
    bare.api()("PUT", "/v1/budgets", put_body(small_tree(policy=policy)))
    alice = bare.user("alice")
    job = {"budget": "lang/a", "gpus": 2, "min_runtime": "1m", "debug": True, "command": ["x"]}
    assert alice("POST", "/v1/workloads", job, 201)["max_runtime_ms"] == 60_000
    assert "at most 2 GPUs, not 3" in problem(alice, "POST", "/v1/workloads", {**job, "gpus": 3}, 422)["detail"]
    found = problem(alice, "POST", "/v1/workloads", {**job, "max_runtime": "2m"}, 422)
    assert "at most 1m, not 2m" in found["detail"]


def test_owner_managers_and_administrators_decide_about_a_workload(daemon: Daemon, agents: list[FakeAgent]) -> None:
    """Others are refused; a manager of any budget above may cancel."""
    assert agents
    alice = daemon.user("alice")
    ids = [alice("POST", "/v1/workloads", {**JOB, "gpus": 1})["id"] for _ in range(4)]
    found = problem(daemon.user("bob"), "POST", f"/v1/workloads/{ids[0]}/cancel", {}, 403)
    assert "belongs to alice" in found["detail"]
    problem(daemon.user("vision-lead"), "POST", f"/v1/workloads/{ids[0]}/cancel", {}, 403)
    for name, workload in zip(("alice", "lang-lead", "boss"), ids, strict=False):
        assert daemon.user(name)("POST", f"/v1/workloads/{workload}/cancel", {})["state"] == "stopping"
    assert daemon.api()("POST", f"/v1/workloads/{ids[3]}/cancel")["state"] == "stopping"


def test_to_cancel_twice_is_no_error(daemon: Daemon, agents: list[FakeAgent]) -> None:
    """While it stops or when it has ended, the second answer says that nothing changed; so for a move."""
    alice, wide = daemon.user("alice"), {**JOB, "gpus": 16}
    ran, waits = (alice("POST", "/v1/workloads", wide)["id"] for _ in range(2))
    for agent in agents:
        agent.sync()
    path = f"/v1/workloads/{waits}/move"
    assert alice("POST", path, {"budget": "lang/a"})["changed"] is False
    for workload, state in ((waits, "cancelled"), (ran, "stopping")):
        answers = [alice("POST", f"/v1/workloads/{workload}/cancel", {}) for _ in range(2)]
        assert [(each["state"], each["changed"]) for each in answers] == [(state, True), (state, False)]
    for agent in agents:
        agent.sync()
        agent.sync()
    found = alice("POST", f"/v1/workloads/{ran}/cancel", {})
    assert (found["state"], found["changed"]) == ("cancelled", False)
    assert "has ended" in problem(alice, "POST", path, {"budget": "lang/a"}, 409)["detail"]


def test_an_ended_workload_cannot_be_cancelled(daemon: Daemon, agents: list[FakeAgent]) -> None:
    """One that has finished is not what was asked for; an unknown one is not found."""
    alice = daemon.user("alice")
    made = alice("POST", "/v1/workloads", JOB)
    agent = next(each for each in agents if each.host in made["attempt"]["placement"])
    agent.sync()
    agent.exit(made["id"])
    agent.sync()
    assert "has ended: finished" in problem(alice, "POST", f"/v1/workloads/{made['id']}/cancel", {}, 409)["detail"]
    problem(alice, "POST", "/v1/workloads/w999999/cancel", {}, 404)
    problem(alice, "GET", "/v1/workloads/nonsense", None, 404)
    assert alice("GET", f"/v1/workloads/{made['id']}/explain")["state"] == "finished"


def test_a_waiting_workload_moves_to_a_budget_of_its_owner(daemon: Daemon) -> None:
    """Only to one that the owner may charge."""
    bob = daemon.user("bob")
    made = bob("POST", "/v1/workloads", {**JOB, "budget": "vision"})
    problem(bob, "POST", f"/v1/workloads/{made['id']}/move", {"budget": "lang/a"}, 403)
    assert bob("POST", f"/v1/workloads/{made['id']}/move", {"budget": "lang/b"})["budget"] == "lang/b"
    assert bob("GET", f"/v1/workloads/{made['id']}")["budget"] == "lang/b"
    assert bob("GET", "/v1/events?kind=moved")["events"][0]["budget"] == "lang/b"


def test_a_requeued_workload_starts_again(daemon: Daemon, agents: list[FakeAgent]) -> None:
    """Its attempt is stopped, and the next attempt has the next number."""
    alice = daemon.user("alice")
    made = alice("POST", "/v1/workloads", {**JOB, "gpus": 8})
    agent = next(each for each in agents if each.host in made["attempt"]["placement"])
    agent.sync()
    assert alice("POST", f"/v1/workloads/{made['id']}/requeue", {})["state"] == "stopping"
    assert agent.sync()["stop"][0]["reason"] == "forced"
    agent.sync()
    again = alice("GET", f"/v1/workloads/{made['id']}")
    assert (again["state"], again["attempts"], again["attempt"]["attempt"]) == ("running", 2, 2)


def test_lists_are_filtered_and_paged(daemon: Daemon) -> None:
    """By state, owner and budget with what is below it; from an id on."""
    alice, bob = daemon.user("alice"), daemon.user("bob")
    ids = [alice("POST", "/v1/workloads", JOB)["id"] for _ in range(3)]
    ids.append(bob("POST", "/v1/workloads", {**JOB, "budget": "vision"})["id"])
    alice("POST", f"/v1/workloads/{ids[0]}/cancel", {})

    def listed(query: str) -> list[str]:
        return [each["id"] for each in alice("GET", f"/v1/workloads?{query}")["workloads"]]

    assert listed("") == ids
    assert listed("state=pending") == ids[1:]
    assert listed("state=cancelled,pending&limit=2") == ids[:2]
    assert listed(f"after={ids[1]}") == ids[2:]
    assert listed("budget=lang") == ids[:3]
    assert listed("budget=/&owner=bob") == ids[3:]
    assert "there is no state 'odd'" in problem(alice, "GET", "/v1/workloads?state=odd", None, 400)["detail"]
    assert "limit=0" in problem(alice, "GET", "/v1/workloads?limit=0", None, 400)["detail"]
    assert "limit=x" in problem(alice, "GET", "/v1/workloads?limit=x", None, 400)["detail"]


def test_the_environment_is_shown_to_those_who_decide(daemon: Daemon) -> None:
    """Others see its names, not its values."""
    alice = daemon.user("alice")
    made = alice("POST", "/v1/workloads", {**JOB, "env": {"KEY": "secret"}})
    assert alice("GET", f"/v1/workloads/{made['id']}")["env"] == {"KEY": "secret"}
    assert daemon.user("bob")("GET", f"/v1/workloads/{made['id']}")["env"] == {"KEY": "***"}
    assert daemon.user("bob")("GET", "/v1/workloads")["workloads"][0]["env"] == {"KEY": "***"}


def test_explain_says_why_a_workload_waits(daemon: Daemon, agents: list[FakeAgent]) -> None:
    """With its rank, its way down the budgets, and a text."""
    assert agents
    alice = daemon.user("alice")
    for _ in range(2):
        alice("POST", "/v1/workloads", {**JOB, "gpus": 8})
    waits = daemon.user("bob")("POST", "/v1/workloads", {**JOB, "budget": "vision", "gpus": 8})
    assert waits["state"] == "pending"
    found = alice("GET", f"/v1/workloads/{waits['id']}/explain")
    assert (found["rank"], found["waiting"], found["pool"]) == (1, 1, "h100")
    assert found["path"][0]["path"] == "vision"
    assert found["start_ms"] > 0
    assert found["reason"] in found["text"]
    assert alice("GET", f"/v1/workloads/{waits['id']}")["reason"] == found["reason"]
    assert alice("GET", "/v1/ranking/h100")["ranking"] == [waits["id"]]
    assert alice("GET", "/v1/reservations")["reservations"][0]["workload"] == waits["id"]
    problem(alice, "GET", "/v1/ranking/none", None, 404)


def test_budgets_are_applied_whole_and_only_forward(daemon: Daemon) -> None:
    """A commit that does not descend from the applied one is refused unless forced; the same again changes nothing."""
    robot = daemon.user("robot", "reconciler")
    tree = small_tree(share=Fraction(1, 3))
    found = problem(robot, "PUT", "/v1/budgets", put_body(tree, "c2"), 409)
    assert "c2 does not descend from c1" in found["detail"]
    assert robot("GET", "/v1/budgets/applied")["commit"] == "c1"
    assert robot("PUT", "/v1/budgets", put_body(tree, "c2", descends_from="c1"))["applied"] is True
    assert robot("PUT", "/v1/budgets", put_body(tree, "c2"))["applied"] is False
    applied = robot("GET", "/v1/budgets/applied")
    assert (applied["commit"], applied["digest"]) == ("c2", plain.digest(tree))
    assert applied["tree"] == plain.encode(tree)
    assert robot("PUT", "/v1/budgets", put_body(small_tree(), "c0", force=True))["applied"] is True
    history = robot("GET", "/v1/budgets/history")["applied"]
    assert [each["commit"] for each in history] == ["c0", "c2", "c1"]
    budgets = robot("GET", "/v1/budgets")
    assert (budgets["commit"], budgets["budgets"][0]["path"]) == ("c0", "/")
    lang = next(each for each in budgets["budgets"] if each["path"] == "lang")
    assert lang["pools"]["h100"]["share"] == "1/2"


def test_what_was_applied_is_on_record_with_who_did_it_and_what_was_odd(daemon: Daemon) -> None:
    """The name of the token, whether it was forced, and the sender's notes."""
    robot = daemon.user("robot", "reconciler")
    more = {"notes": ["an emergency"], "approvers": ["hanna"], "plan": "change  lang"}
    robot("PUT", "/v1/budgets", put_body(small_tree(), "c0", force=True, **more))
    newest, first = robot("GET", "/v1/budgets/history")["applied"]
    assert (newest["by"], newest["forced"], newest["notes"]) == ("robot", True, ["an emergency"])
    assert (newest["approvers"], newest["plan"]) == (["hanna"], "change  lang")
    assert (first["by"], first["forced"], first["notes"]) == ("admin", False, [])
    assert (first["approvers"], first["plan"]) == ([], "")
    assert robot("GET", "/v1/budgets/history?limit=1")["applied"] == [newest]
    problem(robot, "PUT", "/v1/budgets", put_body(small_tree(), "c3", force=True, plan="x" * 10_001), 400)
    assert robot("GET", "/v1/budgets/applied")["notes"] == ["an emergency"]


def test_nothing_is_applied_while_a_person_has_suspended_it(daemon: Daemon) -> None:
    """The refusal names who and why; force goes around it, resume ends it, and both survive a restart."""
    robot, boss = daemon.user("robot", "reconciler"), daemon.user("boss")
    assert boss("POST", "/v1/budgets/suspend", {"reason": "we count"})["suspended"]["by"] == "boss"
    found = problem(boss, "POST", "/v1/budgets/suspend", {"reason": "again"}, 409)
    assert "suspended already, by boss: we count" in found["detail"]
    daemon.stop()
    daemon.start()
    robot, boss = daemon.user("robot", "reconciler"), daemon.user("boss")
    later = put_body(small_tree(share=Fraction(1, 3)), "c2", descends_from="c1")
    found = problem(robot, "PUT", "/v1/budgets", later, 409)
    assert found["detail"] == "nothing is applied since boss suspended it: we count"
    assert robot("PUT", "/v1/budgets", put_body(small_tree()))["applied"] is False  # it is there already
    assert robot("GET", "/v1/budgets/applied")["suspended"]["reason"] == "we count"
    assert b"gpubudget_budgets_suspended 1.0" in robot("GET", "/metrics")
    assert robot("PUT", "/v1/budgets", {**later, "force": True})["applied"] is True
    assert boss("POST", "/v1/budgets/resume", {})["was"]["reason"] == "we count"
    problem(boss, "POST", "/v1/budgets/resume", {}, 409)
    later = put_body(small_tree(), "c3", descends_from="c2", suspend="until the revert is merged")
    assert robot("PUT", "/v1/budgets", later)["applied"] is True
    assert robot("GET", "/v1/budgets/applied")["suspended"]["by"] == "robot"


def test_only_those_above_all_budgets_may_suspend(daemon: Daemon) -> None:
    """An administrator or a manager of the root, so that the name on record is a person's."""
    for name, role in (("alice", "user"), ("robot", "reconciler")):
        for what, body in (("suspend", {"reason": "x"}), ("resume", {})):
            problem(daemon.user(name, role), "POST", f"/v1/budgets/{what}", body, 403)
    assert daemon.api()("POST", "/v1/budgets/suspend", {"reason": "x"})["suspended"]["by"] == "admin"
    assert daemon.api()("POST", "/v1/budgets/resume", {})["suspended"] is None


def broken(tree: dict[str, Any], *path: object, value: object) -> dict[str, Any]:
    """A copy of a tree's plain form with one value changed."""
    copy = json.loads(json.dumps(tree))
    place = copy
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    return dict(copy)


BAD_TREES = [
    (("root", "children", 0, "shares", "default"), "9/10", "the children of / have"),
    (("root", "children", 0, "shares", "default"), "1/0", 'not a fraction such as "1/3"'),
    (("root", "children", 0, "shares", "default"), 0.5, 'not a fraction such as "1/3"'),
    (("root", "children", 0, "path"), "../etc", "is no path of a child of budget /"),
    (("root", "children", 0, "path"), "vision", "two children of one path"),
    (("root", "path"), "top", "the tree's root has the path 'top'"),
    (("root", "extra"), 1, "unknown key 'extra'"),
    (("pools",), [], "no pool"),
    (("pools", 0, "gpus_per_host"), 0, "pool h100 has 2 hosts with 0 GPUs"),
    (("pools", 0, "hosts"), 10**30, "hosts"),
    (("policy", "lookback"), 0, "policy.lookback is 0 ms"),
    (("policy", "grace_period"), -1, "policy.grace_period is -1 ms"),
]


@pytest.mark.parametrize(("path", "value", "said"), BAD_TREES, ids=[said for _, _, said in BAD_TREES])
def test_a_tree_that_cannot_be_is_refused(still: Daemon, path: tuple[object, ...], value: object, said: str) -> None:
    """Whatever went around validation is stopped here, and nothing is applied."""
    body = put_body(small_tree(), "c2", descends_from="c1")
    body["tree"] = broken(body["tree"], *path, value=value)
    assert said in problem(still.api(), "PUT", "/v1/budgets", body, 400)["detail"]
    assert still.api()("GET", "/v1/budgets/applied")["commit"] == "c1"


def test_a_digest_that_is_not_the_trees_is_refused(bare: Daemon) -> None:
    """Nothing is applied that was changed on its way."""
    found = problem(bare.api(), "PUT", "/v1/budgets", put_body(small_tree(), digest="0" * 64), 400)
    assert "digest" in found["detail"]


def test_budgets_applied_later_show_in_new_submissions(daemon: Daemon) -> None:
    """A renamed budget takes its waiting workloads along."""
    alice = daemon.user("alice")
    made = alice("POST", "/v1/workloads", JOB)
    tree = small_tree()
    lang = tree.root.children[0]
    data = plain.encode(tree)
    data["root"]["children"][0]["path"] = "words"
    data["root"]["children"][0]["previously"] = "lang"
    for child, name in zip(data["root"]["children"][0]["children"], ("a", "b"), strict=True):
        child["path"] = f"words/{name}"
    renamed = plain.decode(type(tree), data)
    assert lang.path == "lang"
    daemon.api()("PUT", "/v1/budgets", put_body(renamed, "c2", descends_from="c1"))
    assert alice("GET", f"/v1/workloads/{made['id']}")["budget"] == "words/a"
    problem(alice, "POST", "/v1/workloads", JOB, 422)


def test_events_come_in_order_page_by_page(daemon: Daemon) -> None:
    """With their numbers, from any number on, of the kinds or the workload asked for."""
    alice = daemon.user("alice")
    ids = [alice("POST", "/v1/workloads", JOB)["id"] for _ in range(3)]
    first = alice("GET", "/v1/events?limit=2")
    assert [event["seq"] for event in first["events"]] == [1, 2]
    assert first["events"][0]["kind"] == "budgets_applied"
    rest = alice("GET", f"/v1/events?after={first['next']}")
    assert [event["workload"] for event in rest["events"] if event["kind"] == "submitted"] == ids[1:]
    assert alice("GET", f"/v1/events?after={rest['next']}") == {"events": [], "next": rest["next"]}
    assert alice("GET", "/v1/events?limit=0") == {"events": [], "next": rest["next"]}
    assert {event["kind"] for event in alice("GET", "/v1/events?kind=submitted")["events"]} == {"submitted"}
    assert [e["workload"] for e in alice("GET", f"/v1/events?workload={ids[2]}")["events"]] == [ids[2]]


@pytest.mark.parametrize(
    ("path", "said", "hint"),
    [
        ("events?kind=foo", "there is no kind 'foo'", "kind: budgets_applied, checkpoint, claimed"),
        ("events/stream?kind=started,foo", "there is no kind 'foo'", "kind: budgets_applied"),
        (
            "events?aftr=7",
            "'aftr' in the query is no parameter of /v1/events",
            "parameters are after, limit, kind",
        ),
        ("workloads?owners=bob", "'owners' in the query is no parameter", "parameters are state, budget, owner"),
        ("pools?x", "'x' in the query is no parameter of /v1/pools", "send no query"),
        ("events?after=1&after=2", "after stands twice in the query", "keep one"),
    ],
)
def test_what_a_query_says_is_known_or_refused(alice: Api, path: str, said: str, hint: str) -> None:
    """A misspelled filter would otherwise show everything, or nothing."""
    found = problem(alice, "GET", f"/v1/{path}", None, 400)
    assert found["detail"].startswith(said)
    assert found["hint"].startswith(hint)


def test_the_stream_tells_events_as_they_are_committed(daemon: Daemon) -> None:
    """It begins behind the number given and goes on with what happens."""
    alice = daemon.user("alice")
    connection = http.client.HTTPConnection("127.0.0.1", daemon.port, timeout=10)
    connection.request("GET", "/v1/events/stream?after=1", headers={"Authorization": f"Bearer {alice.token}"})
    response = connection.getresponse()
    assert response.getheader("content-type") == "application/x-ndjson"
    made = alice("POST", "/v1/workloads", JOB)
    line = json.loads(response.readline())
    assert (line["seq"], line["kind"], line["workload"]) == (2, "submitted", made["id"])
    connection.close()


def test_the_stream_ends_for_a_revoked_token(daemon: Daemon) -> None:
    """Nothing that happens after that is told."""
    alice, bob = daemon.user("alice"), daemon.user("bob")
    connection = http.client.HTTPConnection("127.0.0.1", daemon.port, timeout=10)
    connection.request("GET", "/v1/events/stream?after=1", headers={"Authorization": f"Bearer {alice.token}"})
    with connection.getresponse() as response:
        mine = next(token["id"] for token in daemon.api()("GET", "/v1/tokens")["tokens"] if token["name"] == "alice")
        daemon.api()("DELETE", f"/v1/tokens/{mine}")
        bob("POST", "/v1/workloads", {"gpus": 1, "command": ["true"]})
        assert response.read() == b""
    connection.close()


def test_every_path_asks_who_calls(daemon: Daemon) -> None:
    """No token, an unknown one and a revoked one are refused; what a role may not do too."""
    assert problem(daemon.api(""), "GET", "/v1/hosts", None, 401)["hint"]
    assert "not known here" in problem(daemon.api("gpb_" + "x" * 43), "GET", "/v1/hosts", None, 401)["detail"]
    alice = daemon.user("alice")
    assert alice("GET", "/v1/whoami") == {"name": "alice", "role": "user", "host": None}
    mine = next(t["id"] for t in daemon.api()("GET", "/v1/tokens")["tokens"] if t["name"] == "alice")
    assert daemon.api()("DELETE", f"/v1/tokens/{mine}")["revoked_ms"]
    assert "was revoked" in problem(alice, "GET", "/v1/whoami", None, 401)["detail"]
    agent, user = daemon.user("h1", "agent", "h1"), daemon.user("bob")
    for api, method, path in [
        (agent, "POST", "/v1/workloads"),
        (user, "PUT", "/v1/budgets"),
        (user, "POST", "/v1/tokens"),
        (user, "GET", "/v1/tokens"),
        (user, "POST", "/v1/hosts/h1/drain"),
        (user, "DELETE", "/v1/hosts/h1"),
        (user, "POST", "/v1/agents/h1/sync"),
        (agent, "POST", "/v1/agents/h2/sync"),
        (daemon.api(), "POST", "/v1/agents/h2/sync"),
    ]:
        problem(api, method, path, {}, 403)


def test_tokens_are_shown_once_and_kept_as_hashes(daemon: Daemon) -> None:
    """Neither the list nor the database holds the text."""
    made = daemon.api()("POST", "/v1/tokens", {"name": "x", "role": "user"}, 201)
    assert made["token"].startswith("gpb_")
    assert len(made["token"]) == 47
    assert made["token"] not in json.dumps(daemon.api()("GET", "/v1/tokens"))
    assert made["token"].encode() not in daemon.db.read_bytes()
    for body, said in [
        ({"name": "", "role": "user"}, "name is empty"),
        ({"name": "a b", "role": "user"}, "'a b' is not a name"),
        ({"name": "a", "role": "king"}, 'role is "king", not one of admin'),
        ({"name": "a", "role": "agent"}, "names its host"),
        ({"name": "a", "role": "user", "host": "h"}, "names its host"),
    ]:
        assert said in problem(daemon.api(), "POST", "/v1/tokens", body, 400)["detail"]
    problem(daemon.api(), "DELETE", "/v1/tokens/none", None, 404)


def test_paths_and_methods_that_are_not_there_are_problems_too(daemon: Daemon) -> None:
    """404 and 405 have the same form as every other refusal."""
    problem(daemon.api(), "GET", "/v2/workloads", None, 404)
    problem(daemon.api(), "GET", "/v1/workloads/", None, 404)
    problem(daemon.api(), "PATCH", "/v1/workloads", None, 405)


def test_health_and_metrics_need_no_token(daemon: Daemon, agents: list[FakeAgent]) -> None:
    """Occupancy, hosts and waiting work can be scraped."""
    assert agents
    daemon.user("alice")("POST", "/v1/workloads", JOB)
    nobody = daemon.api("")
    assert nobody("GET", "/healthz")["status"] == "ok"
    text = nobody("GET", "/metrics").decode()
    for line in (
        'gpubudget_pool_gpus{pool="h100",use="all"} 16.0',
        'gpubudget_pool_gpus{pool="h100",use="free"} 12.0',
        'gpubudget_hosts{state="ready"} 2.0',
        'gpubudget_workloads{state="running"} 1.0',
        "gpubudget_clock_steps_back_total 0.0",
        'gpubudget_repairs_total{person="yes"} 0.0',
        "gpubudget_event_seconds_count",
        "gpubudget_commit_seconds_count",
    ):
        assert line in text


def test_pools_show_their_gpu_time(daemon: Daemon, agents: list[FakeAgent]) -> None:
    """Capacity is the sum of the other four, exactly."""
    assert agents
    (pool,) = daemon.api()("GET", "/v1/pools")["pools"]
    assert (pool["name"], pool["hosts"], pool["gpus"], pool["free"]) == ("h100", 2, 16, 16)
    parts = ("allocated", "unallocated", "idle", "unavailable")
    assert pool["capacity_gpu_ms"] == sum(pool[f"{part}_gpu_ms"] for part in parts)


def test_usage_is_charged_at_the_start(daemon: Daemon, agents: list[FakeAgent]) -> None:
    """The commitment of a start shows at once: GPUs times the minimum runtime."""
    assert agents
    daemon.user("alice")("POST", "/v1/workloads", JOB)
    budgets = {each["path"]: each["pools"]["h100"] for each in daemon.api()("GET", "/v1/budgets")["budgets"]}
    for path in ("lang/a", "lang", "/"):
        assert (budgets[path]["usage_gpu_ms"], budgets[path]["running"]) == (4 * HOUR, 4)
    assert budgets["vision"]["usage_gpu_ms"] == 0
