"""Whether a placement is right: ready hosts of one pool, whole gangs in equal parts, each GPU once and nobody else's.

Each question returns (rule, sentence) pairs and changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gpubudget.sim.replay import Attempt, Cluster, Workload

Fault = tuple[str, str]


def gang(cluster: Cluster, workload: Workload, pool: str, parts: dict[str, int]) -> Iterator[Fault]:
    """Whether a workload may have so many GPUs of each of these hosts."""
    largest = max((host.gpus for host in cluster.hosts.values() if host.pool == pool), default=0)
    fault = workload.split_fault(parts, largest)
    if fault:
        yield "gang", f"{workload.id}: {fault}"
    if pool and workload.pools and pool not in workload.pools:
        yield "pool", f"{workload.id} is placed in pool {pool} and asked for {', '.join(workload.pools)}"
    for name in parts:
        host = cluster.hosts.get(name)
        if host is None:
            yield "unknown-host", f"{workload.id} is placed on {name}, which the log has not"
        elif host.state != "ready" or host.pool != pool:
            yield "host-not-ready", f"{workload.id} is placed on {name}, {host.state}, of pool {host.pool}"


def free(cluster: Cluster, attempt: Attempt) -> Iterator[Fault]:
    """Whether the GPUs exist, each is named once, and nobody holds them."""
    for name, gpus in attempt.placement.items():
        host = cluster.hosts.get(name)
        if host is None:
            continue
        if len(set(gpus)) != len(gpus) or any(gpu >= host.gpus for gpu in gpus):
            yield "gpu-index", f"{attempt.key[0]} has GPUs {gpus} of {name}, which has {host.gpus}"
        for gpu in gpus:
            if gpu in host.held:
                owner = "/".join(map(str, host.held[gpu]))
                yield "gpu-held-twice", f"GPU {gpu} of {name} goes to {attempt.key[0]} while {owner} holds it"


def room(cluster: Cluster, hosts: Iterable[str]) -> Iterator[Fault]:
    """Whether what is promised on the hosts can still be had once those who leave are gone."""
    for host in hosts:
        if host in cluster.hosts and cluster.room(host) < 0:
            yield "promised-twice", f"more GPUs of {host} are held and promised than it has"
