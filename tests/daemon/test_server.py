"""The process: how it starts, what keeps it from starting, and how it ends."""

import http.client
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gpubudget.cli.main import run_command
from gpubudget.daemon.backup import restore
from gpubudget.daemon.dbfile import StorageError
from gpubudget.daemon.server import Options, parse_listen, run
from gpubudget.errors import ConflictError, GpuBudgetError, InvalidInputError, UsageError
from tests.daemon.harness import Daemon, eventually, put_body, small_tree, stopped_at_end


def test_it_ends_in_good_order_on_sigterm_and_sigint(tmp_path: Path) -> None:
    """Exit code 0, also while somebody listens to the stream and an agent waits for an answer."""
    for number in (signal.SIGTERM, signal.SIGINT):
        with stopped_at_end(Daemon(tmp_path, process=True)) as daemon:
            connection = http.client.HTTPConnection("127.0.0.1", daemon.port, timeout=10)
            token = daemon.admin_file.read_text().strip()
            connection.request("GET", "/v1/events/stream", headers={"Authorization": f"Bearer {token}"})
            begun = time.monotonic()
            child = daemon._child
            assert child is not None
            child.send_signal(number)
            child.communicate(timeout=15)
            assert child.returncode == 0
            assert time.monotonic() - begun < 5
            daemon._child = None
            connection.close()
            assert daemon.errors.read_text() == ""


def test_a_database_has_one_daemon(tmp_path: Path) -> None:
    """A second one says so and ends; after the first has ended, the next may start."""
    with (
        stopped_at_end(Daemon(tmp_path)) as daemon,
        pytest.raises(ConflictError, match="a daemon is using the database"),
    ):
        run(Options(daemon.db, port=0), lambda _url: None)
    with stopped_at_end(Daemon(tmp_path)) as daemon:
        assert daemon.url


def test_a_port_in_use_is_told(tmp_path: Path) -> None:
    """With the address, and before the database is touched."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(ConflictError, match=rf"cannot listen on .*:{port}: Address already in use"):
            run(Options(tmp_path / "a.db", port=port), lambda _url: None)
    with pytest.raises(GpuBudgetError, match=r"cannot listen on nowhere\.invalid:1"):
        run(Options(tmp_path / "a.db", host="nowhere.invalid", port=1), lambda _url: None)
    assert not (tmp_path / "a.db").exists()


def test_a_database_in_no_folder_is_told(tmp_path: Path) -> None:
    """In one sentence."""
    with pytest.raises(InvalidInputError, match="cannot be opened: No such file or directory"):
        run(Options(tmp_path / "none" / "a.db", port=0), lambda _url: None)


def test_the_first_token_is_left_in_a_private_file(tmp_path: Path) -> None:
    """Only when the database has none; and where it cannot be written, nothing is kept."""
    with stopped_at_end(Daemon(tmp_path)) as daemon:
        assert daemon.admin_file.stat().st_mode & 0o777 == 0o600
        assert daemon.api()("GET", "/v1/whoami")["role"] == "admin"
        first = daemon.admin_file.read_text()
        daemon.restart()
        assert daemon.admin_file.read_text() == first
    with pytest.raises(InvalidInputError, match=r"the token file .* cannot be written"):
        run(Options(tmp_path / "b.db", port=0, admin_token_file=tmp_path / "none" / "t"), lambda _url: None)
    with stopped_at_end(Daemon(tmp_path)):
        pass


@pytest.mark.parametrize("text", ["", "8470", ":8470", "host:", "host:99999", "host:x", "host:-1"])
def test_what_is_no_address_is_told(text: str) -> None:
    """With an example of one."""
    with pytest.raises(UsageError, match="is no address to listen on"):
        parse_listen(text)


def test_addresses_are_read() -> None:
    """Names, IPv4 and IPv6."""
    assert parse_listen("127.0.0.1:8470") == ("127.0.0.1", 8470)
    assert parse_listen("[::1]:0") == ("::1", 0)


@pytest.mark.parametrize("db", ["", "/dev/null"])
def test_a_database_that_is_no_file_is_told(db: str) -> None:
    """Before anything is made beside it."""
    with pytest.raises(UsageError, match="is no file for a database"):
        run(Options(Path(db), port=0), lambda _url: None)
    assert not Path(f"{db}.lock").exists()


def test_errors_of_the_command_are_one_sentence(tmp_path: Path) -> None:
    """Exit code 1, no traceback, nothing on stdout."""
    (tmp_path / "a.db").write_text("no database at all, only some words that are long enough to be seen as such" * 20)
    command = [sys.executable, "-m", "gpubudget.cli.main", "serve", f"--db={tmp_path / 'a.db'}", "--listen=127.0.0.1:0"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("error: the database ")
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("--lost-after=10s", "--lost-after is 10s; it may be 30s to 24h"),
        ("--lost-after=25h", "--lost-after is 1d1h; it may be 30s to 24h"),
        ("--poll=50ms", "--poll is 50ms; it may be 100ms to 24h"),
    ],
)
def test_a_time_in_which_healthy_hosts_would_be_lost_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], option: str, said: str
) -> None:
    """Before anything is made."""
    assert run_command(["serve", f"--db={tmp_path / 'a.db'}", option]) == 64
    assert capsys.readouterr().err.startswith(f"error: {said}\nhint: ")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("what", ["removed", "replaced", "without its log"])
def test_a_database_that_is_taken_away_stops_the_daemon_and_is_saved(tmp_path: Path, what: str) -> None:
    """Also when nobody asks anything; what was accepted is in the file that it names."""
    with stopped_at_end(Daemon(tmp_path)) as daemon:
        daemon.api()("PUT", "/v1/budgets", put_body(small_tree()))
        kept = daemon.user("alice")("POST", "/v1/workloads", {"gpus": 1, "command": ["x"]})
        if what == "replaced":
            shutil.copy(daemon.db, tmp_path / "copy")
            (tmp_path / "copy").replace(daemon.db)
        else:
            (daemon.db if what == "removed" else tmp_path / "daemon.db-wal").unlink()
        eventually(lambda: daemon.error)
        assert isinstance(daemon.error, StorageError)
        assert daemon.error.message == f"the database {daemon.db} was removed or replaced while the daemon ran"
        (saved,) = tmp_path.glob("daemon.db.saved-*")
        assert daemon.error.hint.endswith(f"gpubudget restore --db {daemon.db} {saved}")
    assert saved.stat().st_mode & 0o777 == 0o600
    restore(saved, daemon.db)
    with stopped_at_end(Daemon(tmp_path)) as again:
        assert [each["id"] for each in again.api()("GET", "/v1/workloads")["workloads"]] == [kept["id"]]


def test_a_disk_that_is_full_stops_the_daemon_and_loses_nothing(tmp_path: Path) -> None:
    """The request is refused, the daemon ends with a sentence, and what was accepted before is there afterwards."""
    with stopped_at_end(Daemon(tmp_path)) as daemon:
        daemon.api()("PUT", "/v1/budgets", put_body(small_tree()))
        alice = daemon.user("alice")
        token = str(alice.token)
        job = {"budget": "lang/a", "gpus": 1, "min_runtime": "1h", "command": ["x"]}
        kept = alice("POST", "/v1/workloads", job)
        daemon.stop()
    code = (
        "import sys; from pathlib import Path; from gpubudget.daemon import store, server\n"
        "put = store.Store._prepare\n"
        "def small(self):\n"
        "    put(self)\n"
        "    pages = self._writer.execute('PRAGMA page_count').fetchone()[0]\n"
        "    self._writer.execute(f'PRAGMA max_page_count={pages + 8}')\n"
        "store.Store._prepare = small\n"
        "try:\n"
        "    server.run(server.Options(Path(sys.argv[1]), port=0), lambda url: print(url, flush=True))\n"
        "except store.StorageError as error:\n"
        "    print(error); sys.exit(1)\n"
    )
    command = [sys.executable, "-c", code, str(daemon.db)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        daemon.url = child.stdout.readline().strip()
        api = daemon.api(token)
        batch = {"workloads": [{**job, "env": {"A": "x" * 1_000}}] * 50}
        status, found, _ = api.send("POST", "/v1/workloads", batch)
        assert (status, found["type"]) == (503, "urn:gpubudget:storage")
        assert "is full (make room and start it again; what was accepted is there)" in child.stdout.read()
        assert child.wait(15) == 1
        api.close()
    with stopped_at_end(Daemon(tmp_path)) as daemon:
        found = daemon.api(token)("GET", "/v1/workloads")["workloads"]
        assert [each["id"] for each in found] == [kept["id"]]
