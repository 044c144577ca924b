"""Files that describe workloads for ``submit -f``: one mapping or a list, as strict YAML or JSON.

The keys are those of the API, and the daemon judges them; here only the form of the file is checked.
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from gpubudget.errors import InvalidInputError
from gpubudget.gitops import yamlfile
from gpubudget.gitops.diagnostics import to_text

_LARGEST = 8 * 1024 * 1024  # the daemon takes no more in one request
_FORM = "write one mapping or a list of them, with keys such as budget, gpus, min_runtime and command"

Body = dict[str, Any]


def workloads_of(name: str, options: Body) -> list[Body]:
    """The workloads of a file (``-`` is stdin); options of the command line hold for each of them."""
    data = _read(name)
    name = "stdin" if name == "-" else name
    content = _parsed(name, data)
    if isinstance(content, dict) and set(content) == {"workloads"}:
        content = content["workloads"]
    items = content if isinstance(content, list) else [content]
    if not items:
        raise InvalidInputError(f"{name} holds no workload", hint=_FORM)
    for number, item in enumerate(items, 1):
        if not isinstance(item, dict):
            raise InvalidInputError(f"workload {number} of {name} is no mapping of keys to values", hint=_FORM)
    return [{**item, **options} for item in items]


def _read(name: str) -> bytes:
    try:
        if name == "-":
            data: bytes = sys.stdin.buffer.read(_LARGEST + 1)
        else:
            with Path(name).open("rb") as file:
                data = file.read(_LARGEST + 1)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "it is no path"
        raise InvalidInputError(f"{name!r} cannot be read: {why}") from error
    if len(data) > _LARGEST:
        raise InvalidInputError(f"{name} is larger than {_LARGEST:,} bytes", hint="submit it in parts")
    return data


def _parsed(name: str, data: bytes) -> Any:  # noqa: ANN401 - any YAML
    """What the text says: JSON if it is some, else YAML."""
    try:
        return json.loads(data, parse_constant=_no_number)
    except (ValueError, RecursionError):
        pass  # the reader of YAML finds the place, also of what is wrong in JSON
    if not data.strip():
        return []
    if len(data) > yamlfile.MAX_BYTES:
        limit = f"the {yamlfile.MAX_BYTES:,} that are read"
        raise InvalidInputError(f"{name} has {len(data):,} bytes of YAML, more than {limit}", hint="write it as JSON")
    content, problems = yamlfile.parse(name, data)
    if problems:
        texts = [to_text(replace(problem, hint="")) for problem in problems]
        raise InvalidInputError("\n".join(texts), hint=_FORM)
    return content


def _no_number(text: str) -> object:
    raise ValueError(f"{text} is no number")
