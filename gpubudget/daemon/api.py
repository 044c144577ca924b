"""The HTTP API: which path is answered by whom, and which roles may ask. docs/daemon.md is its reference."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from gpubudget import __version__
from gpubudget.daemon import budget_api as budgets
from gpubudget.daemon import cluster_api as cluster
from gpubudget.daemon import workload_api as workloads
from gpubudget.daemon.agents import Agents
from gpubudget.daemon.auth import Role
from gpubudget.daemon.call import Call, Handler, answer, no_route, problem, route
from gpubudget.daemon.service import Service

_USERS = (Role.USER,)
_ADMINS: tuple[Role, ...] = ()


def application(service: Service) -> Starlette:
    """The ASGI application of a running service."""
    agents = Agents(service)

    def with_agents(handler: Callable[[Call, Agents], Awaitable[Response]]) -> Handler:
        async def call_with_agents(call: Call) -> Response:
            return await handler(call, agents)

        return call_with_agents

    table: list[tuple[str, str, tuple[Role, ...] | None, Handler]] = [
        ("POST", "/v1/workloads", _USERS, workloads.submit),
        ("POST", "/v1/agents/{host}/sync?wait_ms", (Role.AGENT,), with_agents(cluster.sync)),
        ("GET", "/v1/workloads?state&budget&owner&limit&after", None, workloads.listing),
        ("GET", "/v1/workloads/{id}", None, workloads.show),
        ("GET", "/v1/workloads/{id}/explain", None, workloads.explain),
        ("GET", "/v1/workloads/{id}/logs?attempt&host&offset&wait_ms", None, with_agents(workloads.logs)),
        ("POST", "/v1/workloads/{id}/cancel", _USERS, workloads.cancel),
        ("POST", "/v1/workloads/{id}/requeue", _USERS, workloads.requeue),
        ("POST", "/v1/workloads/{id}/move", _USERS, workloads.move),
        ("GET", "/v1/events?after&limit&kind&workload", None, cluster.events),
        ("GET", "/v1/events/stream?after&kind", None, cluster.stream),
        ("GET", "/v1/budgets", None, budgets.budgets),
        ("PUT", "/v1/budgets", (Role.RECONCILER,), budgets.apply),
        ("GET", "/v1/budgets/applied", None, budgets.applied),
        ("GET", "/v1/budgets/history?limit", None, budgets.history),
        ("POST", "/v1/budgets/suspend", _USERS, budgets.suspend),
        ("POST", "/v1/budgets/resume", _USERS, budgets.resume),
        ("GET", "/v1/hosts", None, cluster.hosts),
        ("GET", "/v1/hosts/{name}", None, cluster.host),
        ("DELETE", "/v1/hosts/{name}", _ADMINS, with_agents(cluster.remove)),
        ("POST", "/v1/hosts/{name}/drain", _ADMINS, with_agents(cluster.drain)),
        ("POST", "/v1/hosts/{name}/cordon", _ADMINS, cluster.cordon),
        ("POST", "/v1/hosts/{name}/uncordon", _ADMINS, with_agents(cluster.uncordon)),
        ("GET", "/v1/pools", None, cluster.pools),
        ("GET", "/v1/reservations", None, cluster.reservations),
        ("GET", "/v1/ranking/{pool}", None, cluster.ranking),
        ("GET", "/v1/whoami", None, cluster.whoami),
        ("POST", "/v1/tokens", _ADMINS, cluster.create_token),
        ("GET", "/v1/tokens", _ADMINS, cluster.tokens),
        ("DELETE", "/v1/tokens/{id}", _ADMINS, cluster.revoke_token),
    ]

    async def health(_request: Request) -> Response:
        if service.failure is not None:
            return problem(service.failure)
        return answer({"status": "ok", "version": __version__})

    async def metrics(_request: Request) -> Response:
        return Response(service.metrics.text(), media_type="text/plain; version=0.0.4")

    open_routes = [Route("/healthz", health), Route("/metrics", metrics)]
    app = Starlette(
        routes=[*(route(service, *entry) for entry in table), *open_routes],
        exception_handlers={404: no_route, 405: no_route},
    )
    app.router.redirect_slashes = False  # a path is right or wrong; a redirect would name a host that the caller chose
    return app
