"""What Prometheus scrapes: gauges read from the core at that moment, and counts of what the daemon did."""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Iterator
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from gpubudget.core.host import HostState
from gpubudget.units import SECOND

if TYPE_CHECKING:
    from gpubudget.daemon.service import Service

_LATENCIES = (0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0)
_SIZES = (1, 3, 10, 30, 100, 300, 1_000, 10_000)


class Metrics(Collector):
    """The figures of one daemon, in a registry of its own."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self.registry = CollectorRegistry()
        self.handled = Histogram(
            "gpubudget_event_seconds", "Time the core took for an event", buckets=_LATENCIES, registry=self.registry
        )
        self.committed = Histogram(
            "gpubudget_commit_seconds", "Time a transaction took", buckets=_LATENCIES, registry=self.registry
        )
        self.group_size = Histogram(
            "gpubudget_commit_events", "Events in a transaction", buckets=_SIZES, registry=self.registry
        )
        self.stops = Counter("gpubudget_stops", "Attempts told to stop, by reason", ["reason"], registry=self.registry)
        self.registry.register(self)

    def text(self) -> bytes:
        """The page that is scraped."""
        return generate_latest(self.registry)

    def describe(self) -> Iterator[Metric]:
        """Nothing: the names are known when they are collected."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        """The gauges, as the core has them now."""
        service = self._service
        yield from self._pools()
        states = Tally(state.value for state in service.states.values())
        hosts = GaugeMetricFamily("gpubudget_hosts", "Hosts by state", labels=["state"])
        for state in HostState:
            hosts.add_metric([state.value], states[state.value])
        yield hosts
        tally = Tally(record.state.value for record in service.records.active.values())
        workloads = GaugeMetricFamily(
            "gpubudget_workloads", "Workloads that have not ended, by state", labels=["state"]
        )
        for name in ("pending", "held", "starting", "running", "stopping"):
            workloads.add_metric([name], tally[name])
        yield workloads
        repairs = CounterMetricFamily(
            "gpubudget_repairs", "Repairs of hosts that ended, by whether a person was needed", labels=["person"]
        )
        repairs.add_metric(["no"], service.counters.get("repairs_alone", 0))
        repairs.add_metric(["yes"], service.counters.get("repairs_by_person", 0))
        yield repairs
        yield CounterMetricFamily(
            "gpubudget_clock_steps_back", "Times the machine's clock went back", value=service.clock.steps_back
        )
        yield GaugeMetricFamily(
            "gpubudget_clock_behind_seconds",
            "How far the machine's clock is behind",
            value=service.clock.behind() / SECOND,
        )
        yield GaugeMetricFamily(
            "gpubudget_budgets_applied_timestamp_seconds",
            "When the budgets in force were applied; 0 if none were",
            value=service.applied[4] / SECOND if service.applied is not None else 0,
        )
        yield GaugeMetricFamily(
            "gpubudget_budgets_suspended",
            "1 while somebody has suspended the applying of budgets",
            value=int(service.suspension is not None),
        )
        yield CounterMetricFamily("gpubudget_events", "Events handled since the database began", value=service.input)

    def _pools(self) -> Iterator[Metric]:
        service = self._service
        now = GaugeMetricFamily("gpubudget_pool_gpus", "GPUs of a pool now", labels=["pool", "use"])
        time = CounterMetricFamily(
            "gpubudget_pool_gpu_seconds", "GPU time of a pool by its use", labels=["pool", "use"]
        )
        hosts = GaugeMetricFamily(
            "gpubudget_pool_hosts", "Hosts of a pool: present, and declared in cluster.yaml", labels=["pool", "count"]
        )
        for spec in () if service.scheduler.tree is None else service.scheduler.tree.pools:
            hosts.add_metric([spec.name, "declared"], spec.hosts)
        for pool in service.scheduler.pools(service.clock.now()):
            hosts.add_metric([pool.name, "present"], pool.hosts)
            now.add_metric([pool.name, "all"], pool.gpus)
            now.add_metric([pool.name, "free"], pool.free)
            for use in ("allocated", "unallocated", "idle", "unavailable"):
                time.add_metric([pool.name, use], getattr(pool, f"{use}_time") / SECOND)
        yield hosts
        yield now
        yield time
