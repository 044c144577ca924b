"""The debug lane: a few GPUs of a pool kept for short workloads that ask for few GPUs.

Its workloads rank by each person's occupancy of the lane in the last day, least first, then by submission; each person
has at most ``per_person`` at once, and starts nothing more there once that occupancy has reached ``allowance``: who
cuts long work into short pieces gets that much a day and one workload more. The lane lives on ready hosts, moves when
one leaves, and is charged to budgets like everything else; the ledger here is for its own order only.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable

from gpubudget.core.budget import DebugLane
from gpubudget.core.host import HostState
from gpubudget.core.records import Attempt, Host, Workload
from gpubudget.core.usage import Ledger, Line
from gpubudget.core.workload import WorkloadSpec
from gpubudget.units import DAY

WINDOW = DAY
"""How long the lane remembers who has used it."""


class Person(Line):
    """One person's use of the lane within its window: a line of the ledger, what waits, and how much runs."""

    __slots__ = ("name", "running", "waiting")

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name
        self.running = 0
        self.waiting: list[tuple[int, str, Workload]] = []


class Lane:
    """The lane of one pool; ``spec`` is None where the policy keeps none."""

    __slots__ = ("ledger", "people", "spec")

    def __init__(self, now: int) -> None:
        self.spec: DebugLane | None = None
        self.ledger: Ledger[Person] = Ledger(WINDOW, now)
        self.people: dict[str, Person] = {}

    @property
    def gpus(self) -> int:
        """GPUs the lane is to have."""
        return self.spec.gpus if self.spec else 0

    def kept_from(self, asked: WorkloadSpec) -> int:
        """GPUs that a workload cannot have since the lane keeps them."""
        return 0 if self.spec is None or not asked.allocated or self.admits(asked) else self.spec.gpus

    def admits(self, asked: WorkloadSpec) -> bool:
        """Whether a workload may run in the lane at all: allocated, short, small, and on one host."""
        spec = self.spec
        return (
            spec is not None
            and asked.debug
            and asked.allocated
            and asked.max_runtime is not None
            and asked.max_runtime <= spec.max_runtime
            and asked.gpus <= spec.max_gpus
            and asked.hosts in {None, 1}
        )

    def person(self, name: str) -> Person:
        """The record of a person."""
        found = self.people.get(name)
        if found is None:
            found = self.people[name] = Person(name)
        return found

    def enqueue(self, workload: Workload) -> None:
        """Let a workload wait for the lane."""
        insort(self.person(workload.spec.owner).waiting, (workload.submitted, workload.spec.id, workload))

    def dequeue(self, workload: Workload) -> None:
        """Take a workload out, if it waits here."""
        person = self.people.get(workload.spec.owner)
        if person is not None:
            key = (workload.submitted, workload.spec.id)
            place = bisect_left(person.waiting, key)
            if place < len(person.waiting) and person.waiting[place][2] is workload:
                del person.waiting[place]

    def next_up(self, now: int, passed: set[str]) -> list[Workload]:
        """The next workload of each person who may start one, best-ranked first; ``passed`` are left out."""
        if self.spec is None:
            return []
        ready = [
            (person.usage(now), person.waiting[0][:2], person.waiting[0][2])
            for person in self.people.values()
            if person.waiting
            and person.running < self.spec.per_person
            and person.usage(now) < self.spec.allowance
            and person.waiting[0][1] not in passed
        ]
        return [workload for _, _, workload in sorted(ready, key=lambda one: one[:2])]

    def start(self, attempt: Attempt, now: int) -> None:
        """Count an attempt that starts in the lane."""
        self.ledger.occupy(self.person(attempt.workload.spec.owner), attempt.gpus, now)

    def stop(self, attempt: Attempt, now: int) -> None:
        """Count the end of an attempt that started in the lane."""
        self.ledger.occupy(self.person(attempt.workload.spec.owner), -attempt.gpus, now)


def spread(wanted: int, hosts: Iterable[Host]) -> dict[str, int]:
    """On which ready hosts the lane's ``wanted`` GPUs are to be: where they are now, then on the last by name."""
    shares: dict[str, int] = {}
    for host in sorted(hosts, key=lambda host: (host.lane == 0, [-ord(c) for c in host.name])):
        if host.state is HostState.READY and wanted > 0:
            shares[host.name] = min(host.gpus, wanted)
            wanted -= shares[host.name]
    return shares
