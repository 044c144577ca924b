"""The reference page names every request, option and metric that there is."""

import re
from pathlib import Path

import click

from gpubudget.cli.serve import serve
from gpubudget.daemon.api import application
from gpubudget.daemon.service import Service
from tests.daemon.test_service import Wall, on_service

PAGE = (Path(__file__).parents[2] / "docs" / "daemon.md").read_text(encoding="utf-8")


def test_every_request_and_metric_is_on_the_page(tmp_path: Path) -> None:
    """And the page names none that is not there."""

    async def work(service: Service) -> None:
        routes = {
            f"{method} {route.path}"  # type: ignore[attr-defined] # all are routes
            for route in application(service).routes
            for method in route.methods  # type: ignore[attr-defined] # the same
            if method != "HEAD"
        }
        told = set(re.findall(r"^\| `((?:GET|PUT|POST|DELETE) [^`]+)`", PAGE, re.MULTILINE))
        assert told == routes
        text = service.metrics.text().decode()
        told = {name.partition("{")[0] for name in re.findall(r"`(gpubudget_[^`]+)`", PAGE)}
        kinds = dict(re.findall(r"^# TYPE (gpubudget_\w+) (\w+)", text, re.MULTILINE))
        assert told == {name for name in kinds if not name.endswith("_created")}

    on_service(tmp_path / "a.db", Wall(), work)


def test_every_option_of_serve_is_on_the_page() -> None:
    """By its name."""
    for parameter in serve.params:
        if isinstance(parameter, click.Option):
            assert f"`{parameter.opts[0]}" in PAGE
