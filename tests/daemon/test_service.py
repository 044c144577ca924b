"""The single writer: time that does not go back, groups of requests in one transaction, and what ends it."""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from gpubudget.core.events import BudgetsApplied, Cancelled, HostReported, Submitted, Woke
from gpubudget.core.scheduler import Scheduler
from gpubudget.core.workload import WorkloadSpec
from gpubudget.daemon.records import Program
from gpubudget.daemon.service import Service, Settings
from gpubudget.daemon.store import Store
from gpubudget.errors import BrokenInvariantError, ConflictError, NotFoundError
from gpubudget.units import HOUR
from tests.daemon.harness import small_tree


class Wall:
    """A clock that a test sets."""

    def __init__(self, now: int = 1_000_000) -> None:
        self.now = now

    def __call__(self) -> int:
        return self.now


def on_service(path: Path, wall: Wall, work: Callable[[Service], Coroutine[Any, Any, None]]) -> None:
    """Do something with a service on a database."""

    async def main() -> None:
        with Store(path) as store:
            service = Service(store, Settings(), wall)
            try:
                await work(service)
            finally:
                await service.close()

    asyncio.run(main())


def submit(service: Service, max_runtime: int | None = None) -> str:
    """Submit one workload as alice."""
    name = f"w{service.next_number:06d}"
    spec = WorkloadSpec(name, "alice", "lang/a", ("h100",), 8, min_runtime=HOUR, max_runtime=max_runtime)
    return service.submit(spec, Program(("x",))).spec.id


def test_time_stands_still_while_the_clock_is_behind(tmp_path: Path) -> None:
    """Slurm clock: a step back is counted, across a restart too, and no event is earlier than the one before."""
    wall = Wall()

    async def first(service: Service) -> None:
        service.apply(BudgetsApplied(small_tree()))
        wall.now -= 500
        submit(service)
        submit(service)
        assert service.clock.steps_back == 1
        assert service.clock.behind() == 500
        wall.now += 600
        submit(service)

    async def second(service: Service) -> None:
        assert service.clock.now() == 1_000_100
        assert service.clock.steps_back == 1
        wall.now = 2_000_000
        assert service.clock.now() == 2_000_000

    on_service(tmp_path / "a.db", wall, first)
    with Store(tmp_path / "a.db") as store:
        assert [at for _, at, _ in store.inputs(0)] == [1_000_000, 1_000_000, 1_000_000, 1_000_100]
    wall.now = 5
    on_service(tmp_path / "a.db", wall, second)


def test_requests_that_come_together_share_a_transaction(tmp_path: Path) -> None:
    """Each is on disk when its wait is over; one that is refused does not hurt the others."""

    async def work(service: Service) -> None:
        service.apply(BudgetsApplied(small_tree()))
        ids = [submit(service) for _ in range(20)]
        with pytest.raises(NotFoundError):
            service.apply(Cancelled("w000999"))
        with pytest.raises(ConflictError):
            service.submit(WorkloadSpec(ids[0], "alice", "lang/a", ("h100",), 8, min_runtime=HOUR), Program(("x",)))
        assert service.store.last_input() == (0, 0)
        await asyncio.gather(*(service.durable() for _ in ids))
        assert service.store.last_input()[0] == 21
        assert b"gpubudget_commit_seconds_count 1.0" in service.metrics.text()
        assert [row[0] for row in service.store.workloads(0, 100)] == list(range(1, 21))

    on_service(tmp_path / "a.db", Wall(), work)


def test_orders_follow_the_commit(tmp_path: Path) -> None:
    """What is decided but not on disk is no order yet."""

    async def work(service: Service) -> None:
        service.apply(BudgetsApplied(small_tree()))
        service.apply(HostReported("h1", "h100", 8))
        await service.durable()
        submit(service)
        assert service.records.active["w000001"].state == "running"
        assert service.gangs.orders("h1", (), 0)["run"] == []
        assert service.committed_line < service.line
        await service.durable()
        assert service.gangs.orders("h1", (), 0)["run"][0]["workload"] == "w000001"
        assert service.committed_line == service.line

    on_service(tmp_path / "a.db", Wall(), work)


def test_the_core_is_woken_when_it_asks_for_it(tmp_path: Path) -> None:
    """Also when the machine was asleep at that moment."""
    wall = Wall()

    async def work(service: Service) -> None:
        service.apply(BudgetsApplied(small_tree()))
        service.apply(HostReported("h1", "h100", 8))
        service.apply(HostReported("h2", "h100", 8))
        submit(service, max_runtime=HOUR)
        await service.durable()
        assert service.scheduler.next_wakeup() == wall.now + HOUR
        wall.now += 2 * HOUR
        news = asyncio.Event()
        service.listeners.add(news)
        await asyncio.wait_for(news.wait(), 10)
        assert service.gangs.orders("h1", (), 0)["run"] == []
        assert service.gangs.orders("h2", (), 0)["run"] == []

    on_service(tmp_path / "a.db", wall, work)


def test_a_core_that_breaks_ends_the_service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its state is in doubt: nothing more is accepted or written, and a restart has what was committed."""
    wall = Wall()

    async def work(service: Service) -> None:
        service.apply(BudgetsApplied(small_tree()))
        submit(service)
        await service.durable()
        handle = Scheduler.handle
        monkeypatch.setattr(Scheduler, "handle", lambda *_: 1 // 0)
        with pytest.raises(BrokenInvariantError, match="the scheduler failed on Woke: ZeroDivisionError"):
            service.apply(Woke())
        monkeypatch.setattr(Scheduler, "handle", handle)
        with pytest.raises(BrokenInvariantError):
            submit(service)
        with pytest.raises(BrokenInvariantError):
            await service.durable()
        assert service.closing.is_set()

    on_service(tmp_path / "a.db", wall, work)

    async def afterwards(service: Service) -> None:
        assert list(service.records.active) == ["w000001"]
        assert submit(service) == "w000002"

    on_service(tmp_path / "a.db", wall, afterwards)


def test_a_refused_submission_leaves_no_record(tmp_path: Path) -> None:
    """Its number is free again."""

    async def work(service: Service) -> None:
        service.apply(BudgetsApplied(small_tree()))
        submit(service)
        with pytest.raises(ConflictError):
            service.submit(WorkloadSpec("w000001", "a", "lang/a", ("h100",), 8, min_runtime=1), Program(("x",)))
        assert isinstance(Submitted, type)
        assert submit(service) == "w000002"

    on_service(tmp_path / "a.db", Wall(), work)
