"""Repair steps: real commands and real web hooks."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from gpubudget.agent.commands import Commands, Result
from gpubudget.agent.config import Step
from gpubudget.agent.gpus import SimulatedGPUs
from gpubudget.agent.health import Monitor, Probe
from gpubudget.agent.repair import Repairer
from tests.agent.acting import eventually, shell

Making = Callable[..., Repairer]
HOST = {"host": "h1", "pool": "main"}


@pytest.fixture
def making(tmp_path: Path) -> Iterator[Making]:
    """Makes repairers of a host that is well when a file called ``well`` exists."""
    made: list[Monitor] = []

    def make(*steps: Step) -> Repairer:
        probe = Probe("file", lambda: Result((tmp_path / "well").exists(), "a file"), 3_600_000, 1_000)
        made.append(Monitor([probe], lambda: None))
        made[-1].wait_first(10)
        gpus = SimulatedGPUs(1, tmp_path / "sick.json")
        return Repairer(steps, HOST, tmp_path, gpus, made[-1], Commands(), lambda: None)

    yield make
    for monitor in made:
        monitor.close()


def ended(repairer: Repairer, token: str) -> dict[str, str]:
    """What is reported when the repair of a token is over."""

    def over() -> dict[str, str] | None:
        report = repairer.report()
        return report if report and report["token"] == token and report["state"] != "running" else None

    found: dict[str, str] = eventually(over, "the end of the repair")
    return found


@pytest.fixture
def hook() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """A web server: its address, and what was posted to it. It answers with the status in the path."""
    posted: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            posted.append({**body, "header": self.headers.get("X-Key")})
            self.send_response(int(self.path.strip("/")))
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}", posted
        server.shutdown()
        thread.join()


def test_steps_run_in_order_and_checks_follow(
    making: Making, hook: tuple[str, list[dict[str, Any]]], tmp_path: Path
) -> None:
    """Commands and web hooks run one after the other, know what is wrong, and the host is checked at the end."""
    url, posted = hook
    said = (
        'echo "$GPUBUDGET_HOST $GPUBUDGET_POOL $GPUBUDGET_REPAIR_STEP $GPUBUDGET_REPAIR_TOKEN $GPUBUDGET_FAILED_CHECKS"'
    )
    repairer = making(
        Step("look", shell(f"{said} > {tmp_path}/said")),
        Step("ticket", url=f"{url}/200", headers={"X-Key": "k"}),
        Step("heal", shell(f"touch {tmp_path}/well")),
    )
    repairer.begin("t1")
    report = {"token": "t1", "state": "done", "step": "health checks", "message": "all health checks pass"}
    assert ended(repairer, "t1") == report
    assert (tmp_path / "said").read_text() == "h1 main look t1 file\n"
    failed = [{"name": "file", "ok": False, "message": "a file"}]
    assert posted == [{**HOST, "token": "t1", "step": "ticket", "failed_checks": failed, "header": "k"}]


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (Step("bad", shell("echo broken; exit 2")), "exit code 2: broken"),
        (Step("slow", ("sleep", "100"), timeout=100), "took longer than 100ms"),
        (Step("gone", ("/no/such",)), "cannot run /no/such"),
        (Step("away", url="http://127.0.0.1:1/x"), "http://127.0.0.1:1/x cannot be reached"),
        (Step("odd", url="http://[bad/x"), "cannot be reached"),
    ],
)
def test_a_step_that_fails_ends_the_repair(making: Making, step: Step, message: str, tmp_path: Path) -> None:
    """After a step that failed no other runs, and the report says which it was and why."""
    repairer = making(step, Step("next", shell(f"touch {tmp_path}/well")))
    repairer.begin("t1")
    report = ended(repairer, "t1")
    assert (report["state"], report["step"]) == ("failed", step.name)
    assert message in report["message"]
    assert not (tmp_path / "well").exists()


def test_a_hook_that_is_refused_has_failed(making: Making, hook: tuple[str, list[dict[str, Any]]]) -> None:
    """A web hook is done only with an answer of success."""
    repairer = making(Step("ticket", url=f"{hook[0]}/503"))
    repairer.begin("t1")
    assert ended(repairer, "t1")["message"] == f"{hook[0]}/503 answered 503 Service Unavailable"


def test_a_host_that_is_still_ill_is_not_repaired(making: Making) -> None:
    """Steps that all went well are not enough: the checks decide, also when there are no steps."""
    repairer = making()
    repairer.begin("t1")
    report = {"token": "t1", "state": "failed", "step": "health checks", "message": "file: a file"}
    assert ended(repairer, "t1") == report


def test_a_token_is_begun_once(making: Making, tmp_path: Path) -> None:
    """The same token runs no steps again, also after a restart; a new one does."""
    count = Step("count", shell(f"echo x >> {tmp_path}/runs; touch {tmp_path}/well"))
    repairer = making(count)
    repairer.begin("t1")
    ended(repairer, "t1")
    repairer.begin("t1")
    later = making(count)
    later.begin("t1")
    assert ended(later, "t1")["state"] == "done"
    later.begin("t2")
    ended(later, "t2")
    assert (tmp_path / "runs").read_text() == "x\nx\n"


def test_a_second_token_waits_for_the_first(making: Making, tmp_path: Path) -> None:
    """While one repair runs no other begins."""
    repairer = making(Step("wait", shell(f"while [ ! -e {tmp_path}/gate ]; do sleep 0.02; done")))
    repairer.begin("t1")
    repairer.begin("t2")
    report = repairer.report()
    assert report
    assert (report["token"], report["state"]) == ("t1", "running")
    (tmp_path / "gate").touch()
    ended(repairer, "t1")


def test_what_cannot_be_put_on_record_is_not_begun(making: Making, tmp_path: Path) -> None:
    """Without a record no step runs, since it could run twice."""
    repairer = making(Step("heal", shell(f"touch {tmp_path}/well")))
    repairer._folder = tmp_path / "gone"
    repairer.begin("t1")
    assert "cannot be put on record" in ended(repairer, "t1")["message"]
    assert not (tmp_path / "well").exists()
