"""The optional compiled build: the same source, its busiest modules compiled by mypyc where GPUBUDGET_COMPILE=1 is set.

All else stands in pyproject.toml. Without the variable nothing is compiled and nothing more is needed; with it, mypy
must be installed and pip be told not to isolate the build (``make compiled`` does both).
"""

import os
from pathlib import Path

from setuptools import setup

# What is called for every event. What is called now and then stays plain, and so do the values that are decoded from
# plain data: compiled classes forget what their tuples hold.
COMPILED = {
    "core": (
        "applying",
        "contest",
        "decisions",
        "events",
        "fairshare",
        "hosts",
        "hoststate",
        "lane",
        "lifecycle",
        "passes",
        "placement",
        "pool",
        "reclaim",
        "records",
        "reservation",
        "scheduler",
        "search",
        "state",
        "usage",
        "waiting",
    ),
    "sim": ("engine", "meters", "played", "stage"),
}


def modules() -> list[object]:
    """The extension modules to build."""
    if os.environ.get("GPUBUDGET_COMPILE") != "1":
        return []
    from mypyc.build import mypycify  # noqa: PLC0415 - needed for the compiled build only

    paths = [str(Path("gpubudget", package, f"{name}.py")) for package, names in COMPILED.items() for name in names]
    built: list[object] = mypycify(paths, opt_level="3")
    return built


setup(ext_modules=modules())
