"""The agent as a process of its own, in conversation with a daemon that says what the test wants."""

from __future__ import annotations

import base64
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from gpubudget.agent.supervise import read_json
from gpubudget.cli.main import run_command
from tests.agent.acting import TOKEN, AgentProcess, Daemon, eventually, gone, marked, order, plain, stop

Agents = Callable[..., AgentProcess]
NAP = "exec sleep 100"


def test_first_report_says_what_is(daemon: Daemon, agents: Agents) -> None:
    """The first report has the host's GPUs, pool and health, and no attempts."""
    agents()
    report = daemon.wait_for(lambda _: True)
    assert report["path"] == "/v1/agents/h1/sync"
    assert (report["pool"], report["gpus"], report["gpu_models"]) == ("main", 8, ["simulated"] * 8)
    assert (report["attempts"], report["repair"], report["checkpoints"]) == ([], None, [])
    assert daemon.health(report) == {"gpus": True, "disk": True}
    assert report["boot_id"]


def test_start_and_exit_are_reported_at_once(daemon: Daemon, agents: Agents, tmp_path: Path) -> None:
    """An order starts a process, and its end is told without waiting for the time of the next report."""
    agents()
    daemon.wait_for(lambda report: report["wait"] == 20)
    daemon.say(run=[plain(order("exit 3"))])
    ended = daemon.wait_state("exited")
    assert ended["exit_code"] == 3
    kept = read_json(tmp_path / "h1" / "state" / "attempts" / "w1.1", "exit.json")
    assert daemon.reports[-1]["came"] - kept["ended_ms"] / 1000 < 5  # the interval is 20 s
    daemon.say(run=[], forget=[{"workload": "w1", "attempt": 1}])
    daemon.wait_for(lambda report: report["attempts"] == [])


def test_stop_names_what_was_signalled(daemon: Daemon, agents: Agents) -> None:
    """A stop ends an attempt, which is reported as signalled."""
    agents()
    daemon.say(run=[plain(order(NAP))])
    daemon.wait_state("running")
    daemon.say(run=[], stop=[plain(stop())])
    assert daemon.wait_state("exited")["signalled"]


def test_a_stale_attempt_is_stopped(daemon: Daemon, agents: Agents) -> None:
    """An attempt that an answer does not name is stopped; the newer one goes on."""
    agents()
    daemon.say(run=[plain(order(NAP))])
    daemon.wait_state("running")
    daemon.say(run=[plain(order(NAP, attempt=2))])
    assert daemon.wait_state("exited")["signalled"]
    assert daemon.states()["w1", 2] == "running"


def test_killed_agent_loses_nothing(daemon: Daemon, agents: Agents, tmp_path: Path) -> None:
    """After kill -9 workloads run on; the next agent has them, also the exit code of one that ended meanwhile."""
    agent, gate, starts = agents(), tmp_path / "gate", tmp_path / "starts"
    ends = order(f"echo x >> {starts}; while [ ! -e {gate} ]; do sleep 0.02; done; exit 5")
    daemon.say(run=[plain(ends), plain(order(f"echo y >> {starts}; {NAP}", "w2"))])
    eventually(lambda: starts.exists() and len(starts.read_text()) == 4)
    agent.end(signal.SIGKILL)
    gate.touch()
    eventually(lambda: len(marked(tmp_path)) == 2)
    seen = len(daemon.reports)
    agent.start()
    daemon.wait_more(seen)
    assert daemon.reports[seen]["attempts"][0]["exit_code"] == 5
    assert daemon.states() == {("w1", 1): "exited", ("w2", 1): "running"}
    assert sorted(starts.read_text().split()) == ["x", "y"]


def test_killed_at_any_moment_starts_nothing_twice(daemon: Daemon, agents: Agents, tmp_path: Path) -> None:
    """Whenever an agent is killed, an attempt is started once at most, and what became of it is told in the end."""
    starts, chance = tmp_path / "starts", random.Random(7)
    orders = [order(f"echo {n} >> {starts}; sleep 0.05", f"w{n}") for n in range(30)]
    agent = agents()
    for first in range(0, 30, 3):
        daemon.say(run=[plain(one) for one in orders[: first + 3]])
        time.sleep(chance.uniform(0, 0.08))  # not a condition: the moment of the kill is what is tried
        agent.end(signal.SIGKILL)
        agent.start()
        seen = len(daemon.reports)
        daemon.wait_more(seen)
    everything = {(one.workload, 1): "exited" for one in orders}
    daemon.wait_for(lambda _: daemon.states() == everything)
    lines = starts.read_text().split()
    assert len(lines) == len(set(lines))
    never = [one for one in daemon.reports[-1]["attempts"] if "never ran" in one.get("error", "")]
    assert len(lines) + len(never) == 30


def test_late_order_for_a_forgotten_attempt_starts_nothing(daemon: Daemon, agents: Agents, tmp_path: Path) -> None:
    """An old order that comes after the attempt was forgotten is answered with its end."""
    agents()
    given = plain(order(f"echo x >> {tmp_path}/starts; exit 4"))
    daemon.say(run=[given])
    daemon.wait_state("exited")
    daemon.say(run=[], forget=[{"workload": "w1", "attempt": 1}])
    daemon.wait_for(lambda report: report["attempts"] == [])
    daemon.say(run=[given], forget=[])
    assert daemon.wait_state("exited")["exit_code"] == 4
    assert (tmp_path / "starts").read_text() == "x\n"


def test_a_silent_daemon_stops_nothing(daemon: Daemon, agents: Agents, tmp_path: Path) -> None:
    """While the daemon is away workloads run and end, and all is reported when it is back."""
    agents()
    gate = tmp_path / "gate"
    ends = plain(order(f"while [ ! -e {gate} ]; do sleep 0.02; done; exit 5"))
    daemon.say(run=[ends, plain(order(NAP, "w2"))])
    daemon.wait_state("running", "w2")
    daemon.close()
    gate.touch()
    eventually(lambda: len(marked(tmp_path)) == 2)
    daemon.open()
    daemon.wait_state("exited")
    assert daemon.states()["w2", 1] == "running"


def test_a_broken_answer_changes_nothing(daemon: Daemon, agents: Agents) -> None:
    """An answer that cannot be read is passed over: workloads run on, and the next one counts."""
    agents()
    daemon.say(run=[plain(order(NAP))])
    daemon.wait_state("running")
    for raw in (b"not json", b"[]", b"", b'{"run": [{"workload": "../x"}]}', b'{"poll_ms": "soon"}'):
        daemon.raw = raw
        daemon.say()
        daemon.wait_more(len(daemon.reports))
    assert daemon.states() == {("w1", 1): "running"}
    daemon.raw = None
    daemon.say(run=[])
    daemon.wait_state("exited")


def test_an_order_that_cannot_be_carried_out_is_answered(daemon: Daemon, agents: Agents) -> None:
    """What cannot be started is reported with the reason, and the others start."""
    agents()
    broken = [order("", "w1", command=("/no/such",)), order("", "w2", cwd="/no/such"), order(NAP, "w3")]
    daemon.say(run=[plain(one) for one in broken])
    assert "does not exist" in daemon.wait_state("exited", "w1")["error"]
    assert daemon.wait_state("exited", "w2")["exit_code"] == 126
    assert daemon.wait_state("running", "w3")


def test_logs_are_sent_when_asked_for(daemon: Daemon, agents: Agents) -> None:
    """A piece of a log that is asked for comes with the next report, which does not wait."""
    agents()
    daemon.say(run=[plain(order("echo hello; exit 0"))])
    daemon.wait_state("exited")
    tail = {"request": "r1", "workload": "w1", "attempt": 1, "offset": 1, "limit": 65536}
    daemon.say(tails=[tail, {**tail, "request": "r2", "workload": "w9"}])
    eventually(lambda: len(daemon.chunks) >= 2)
    chunks = {chunk["request"]: chunk for chunk in daemon.chunks}
    assert base64.b64decode(chunks["r1"]["data_b64"]) == b"ello\n"
    assert (chunks["r1"]["next_offset"], chunks["r1"]["end"]) == (6, True)
    assert (chunks["r2"]["data_b64"], chunks["r2"]["end"]) == ("", True)


def test_checkpoints_are_reported(daemon: Daemon, agents: Agents) -> None:
    """A checkpoint is in the reports that follow it."""
    agents("--interval", "200ms")
    daemon.say(run=[plain(order(f"touch .checkpointed; {NAP}"))])
    report = daemon.wait_for(lambda report: report["checkpoints"])
    assert (report["checkpoints"][0]["workload"], report["checkpoints"][0]["attempt"]) == ("w1", 1)


def test_shared_folder_keeps_checkpoints(daemon: Daemon, agents: Agents, tmp_path: Path) -> None:
    """With --shared-dir two hosts of a gang see the same checkpoint folder."""
    (tmp_path / "shared").mkdir()
    agents("--shared-dir", str(tmp_path / "shared"))
    daemon.say(run=[plain(order("pwd; echo saved > step"))])
    daemon.wait_state("exited")
    assert (tmp_path / "shared" / "checkpoints" / "w1" / "step").read_text() == "saved\n"


def test_a_sick_gpu_is_reported_at_once(daemon: Daemon, agents: Agents) -> None:
    """A GPU that falls ill makes the check of GPUs fail, without waiting for the next report's time."""
    agent = agents("--interval", "300ms")
    daemon.wait_for(lambda report: daemon.health(report)["gpus"])
    (agent.state / "simulated-gpus.json").write_text('{"sick": [3]}')
    report = daemon.wait_for(lambda report: not daemon.health(report)["gpus"])
    assert {"name": "gpus", "ok": False, "message": "GPU 3 is sick (simulated)"} in report["health"]


REPAIR = """
repair:
  - name: heal
    command:
      - /bin/sh
      - -c
      - |
        echo "$GPUBUDGET_HOST $GPUBUDGET_FAILED_CHECKS" >> STATE/repairs
        echo '{"sick": []}' > STATE/simulated-gpus.json
"""


def with_config(tmp_path: Path, text: str) -> tuple[str, str]:
    file = tmp_path / "agent.yaml"
    file.write_text(text.replace("STATE", str(tmp_path / "h1" / "state")))
    return "--config", str(file)


def test_repair_heals_once(daemon: Daemon, agents: Agents, tmp_path: Path) -> None:
    """Repair steps run once for a token, also when the agent is started anew, and the host is well afterwards."""
    agent = agents("--interval", "300ms", *with_config(tmp_path, REPAIR))
    daemon.wait_for(lambda _: True)
    (agent.state / "simulated-gpus.json").write_text('{"sick": [3]}')
    daemon.wait_for(lambda report: not daemon.health(report)["gpus"])
    daemon.say(repair={"token": "t1"})
    done = daemon.wait_for(lambda report: report["repair"] and report["repair"]["state"] == "done")
    assert done["repair"]["message"] == "all health checks pass"
    assert daemon.health(done)["gpus"]
    agent.end(signal.SIGKILL)
    agent.start()
    seen = len(daemon.reports)
    daemon.wait_more(seen + 2)
    assert daemon.reports[-1]["repair"] == done["repair"]
    assert (agent.state / "repairs").read_text() == "h1 gpus\n"


def test_interrupted_repair_has_failed(daemon: Daemon, agents: Agents, tmp_path: Path) -> None:
    """A repair that the agent's end interrupted is reported as failed; its command does not go on."""
    slow = "repair: [{name: slow, command: [/bin/sh, -c, 'echo $$ > STATE/pid; exec sleep 100']}]"
    agent = agents(*with_config(tmp_path, slow))
    daemon.say(repair={"token": "t1"})
    eventually(lambda: (agent.state / "pid").exists() and (agent.state / "pid").read_text())
    daemon.wait_for(lambda report: report["repair"] and report["repair"]["state"] == "running")
    agent.end(signal.SIGKILL)
    agent.start()
    failed = daemon.wait_for(lambda report: report["repair"]["state"] == "failed")["repair"]
    assert (failed["token"], failed["step"]) == ("t1", "slow")
    eventually(lambda: gone(int((agent.state / "pid").read_text())))


def test_repair_waits_for_an_empty_host(daemon: Daemon, agents: Agents, tmp_path: Path) -> None:
    """No repair step runs while a workload does."""
    agent = agents(*with_config(tmp_path, REPAIR))
    daemon.say(run=[plain(order(NAP))], repair={"token": "t1"})
    daemon.wait_state("running")
    assert not (agent.state / "repairs").exists()
    daemon.say(run=[])
    daemon.wait_for(lambda report: report["repair"] and report["repair"]["state"] == "done")


def test_one_agent_for_a_folder(daemon: Daemon, agents: Agents) -> None:
    """A second agent on the same folder ends at once and says who has it."""
    first = agents()
    daemon.wait_for(lambda _: True)
    second = agents()
    assert second.process
    assert first.process
    assert second.process.wait(20) == 1
    assert f"error: another agent (process {first.process.pid}) uses the state folder" in first.log.read_text()


def test_a_refused_first_report_ends_the_agent(daemon: Daemon, tmp_path: Path) -> None:
    """With a wrong token the agent ends at its first report and says so."""
    (tmp_path / "h1").mkdir()
    agent = AgentProcess(daemon, tmp_path / "h1")
    (tmp_path / "h1" / "token").write_text("gpb_other")
    agent.start()
    assert agent.process
    assert agent.process.wait(20) == 4
    assert "the token is not known" in agent.log.read_text()


def test_a_later_refusal_stops_nothing(daemon: Daemon, agents: Agents) -> None:
    """A daemon that refuses an agent it knew leaves its workloads alone."""
    agents()
    daemon.say(run=[plain(order(NAP))])
    daemon.wait_state("running")
    daemon.status = 403
    daemon.say(poll_ms=20_000)
    seen = len(daemon.reports)
    daemon.wait_more(seen + 1)
    assert daemon.states() == {("w1", 1): "running"}
    daemon.status = 200
    daemon.say(run=[])
    daemon.wait_state("exited")


def test_sigterm_leaves_workloads(daemon: Daemon, tmp_path: Path, agents: Agents) -> None:
    """An agent that is told to end leaves its workloads running, for the next one to take over."""
    (tmp_path / "h1").mkdir()
    first = AgentProcess(daemon, tmp_path / "h1").start()
    daemon.say(run=[plain(order(NAP))])
    daemon.wait_state("running")
    assert first.end(signal.SIGTERM) == 0
    eventually(lambda: len(marked(tmp_path)) == 2, "its supervisor and its command")  # which may be just beginning
    seen = len(daemon.reports)
    agents()
    daemon.wait_more(seen)
    assert daemon.states() == {("w1", 1): "running"}


def test_stop_workloads_stops_and_reports(daemon: Daemon, agents: Agents, tmp_path: Path) -> None:
    """With --stop-workloads an agent that ends stops everything, and still reports that."""
    agent = agents()
    daemon.say(run=[plain(order("trap 'exit 2' TERM; while :; do sleep 0.02; done"))])
    daemon.wait_state("running")
    assert agent.end(signal.SIGINT) == 0
    assert daemon.states() == {("w1", 1): "exited"}
    assert marked(tmp_path) == []


@pytest.mark.parametrize("record", ["repair.json", "attempts/w1.1/attempt.json"])
def test_a_damaged_record_is_told(tmp_path: Path, record: str) -> None:
    """What the disk has spoiled ends the agent with its place, and nothing is guessed."""
    (tmp_path / "token").write_text(TOKEN)
    path = tmp_path / "state" / record
    path.parent.mkdir(parents=True)
    path.write_text('{"workl')
    command = [sys.executable, "-m", "gpubudget", "agent", "--pool", "main", "--state-dir", str(tmp_path / "state")]
    command += ["--simulate-gpus", "8", "--token-file", str(tmp_path / "token")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"error: the record {path} is damaged: ")
    assert path.read_text() == '{"workl'


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (("--interval", "1ms"), 64, "--interval is 1ms; it may be 100ms to 1m"),
        (("--interval", "soon"), 64, "--interval 'soon' is not a duration"),
        (("--shared-dir", "/no/such"), 64, "'--shared-dir': Directory '/no/such' does not exist"),
        (("--host", "a b"), 64, "--host 'a b' is no name"),
        (("--simulate-gpus", "0"), 64, "0 is not in the range 1<=x<=256"),
        (("--config", "/no/such.yaml"), 1, "the configuration /no/such.yaml cannot be read"),
        (("--state-dir", "/proc/no"), 1, "the state folder /proc/no cannot be used"),
        (("--token-file", "/no/such"), 4, "the token file /no/such does not exist"),
    ],
)
def test_wrong_options_end_in_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: tuple[str, ...], code: int, message: str
) -> None:
    """What is wrong with an option is said in one sentence, with the exit code for that."""
    (tmp_path / "token").write_text(TOKEN)
    given = ["agent", "--pool", "main", "--state-dir", str(tmp_path / "state"), "--simulate-gpus", "8"]
    assert run_command([*given, "--token-file", str(tmp_path / "token"), *options]) == code
    assert message in capsys.readouterr().err
