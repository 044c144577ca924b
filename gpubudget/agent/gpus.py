"""The GPUs of a host: read through NVML, or simulated where there are none.

Both say how many there are, which models, and what is wrong with them. A fault of NVML itself is something wrong with
the GPUs, and never an exception.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from gpubudget.agent.config import Config
from gpubudget.errors import InvalidInputError

Nvml = Any
"""NVML's module, handles and answers, which have no types."""

HARMLESS_XIDS = frozenset({13, 31, 43, 45, 68, 109})
"""Critical XIDs that a faulty program causes and that say nothing of the GPU."""
_MOST_XIDS = 1_000


class Gpus(Protocol):
    """What the agent asks about its GPUs."""

    def models(self) -> tuple[str, ...]:
        """The model of each GPU that answers, in order of index."""
        ...

    def faults(self) -> list[str]:
        """One sentence for each thing that is wrong now; empty when all is well."""
        ...

    def release(self) -> None:
        """Repair steps begin: let go of the GPUs, which could not be reset otherwise, and forget what was noted."""
        ...


class SimulatedGPUs:
    """GPUs that exist in name only. Those listed in the file as ``{"sick": [3]}`` are ill."""

    def __init__(self, count: int, file: Path) -> None:
        self._count, self._file = count, file

    def models(self) -> tuple[str, ...]:
        """As many as were asked for."""
        return ("simulated",) * self._count

    def faults(self) -> list[str]:
        """What the file says."""
        try:
            sick = json.loads(self._file.read_text(encoding="utf-8"))["sick"]
            return [f"GPU {int(index)} is sick (simulated)" for index in sorted(sick)]
        except FileNotFoundError:
            return []
        except (OSError, ValueError, KeyError, TypeError):
            return [f'{self._file} does not say {{"sick": [INDEX, ...]}}']

    def release(self) -> None:
        """Nothing is held or noted: the file says what is."""


def open_gpus(config: Config, simulated: int | None, folder: Path) -> Gpus:
    """The GPUs of this host, or so many simulated ones, which ``simulated-gpus.json`` in ``folder`` makes ill.

    Raises InvalidInputError if there are none.
    """
    if simulated:
        return SimulatedGPUs(simulated, folder / "simulated-gpus.json")
    import pynvml  # noqa: PLC0415 - not needed where GPUs are simulated

    return NvmlGPUs(pynvml, config.gpus, config.max_temperature)


class NvmlGPUs:
    """The GPUs that the driver shows. ``nvml`` is the module ``pynvml``."""

    def __init__(self, nvml: Nvml, expected: int | None, max_temperature: int) -> None:
        self._nvml = nvml
        self._max_temperature = max_temperature
        self._events: Any = None
        self._xids: dict[int, set[int]] = {}
        self._open = False
        try:
            found = self._count()
        except nvml.NVMLError as problem:
            if expected is None:
                raise InvalidInputError(
                    f"this host shows no GPUs: {problem}",
                    hint="install the NVIDIA driver, or try it out with --simulate-gpus 8",
                ) from None
            found = 0
        self._expected = found if expected is None else expected

    def _count(self) -> int:
        if not self._open:
            self._nvml.nvmlInit()
            self._open = True
        return int(self._nvml.nvmlDeviceGetCount())

    def models(self) -> tuple[str, ...]:
        """What NVML calls them; GPUs that do not answer, or are missing, are there in number only."""
        return tuple(self._model(index) for index in range(self._expected))

    def _model(self, index: int) -> str:
        try:
            name = self._nvml.nvmlDeviceGetName(self._nvml.nvmlDeviceGetHandleByIndex(index))
        except self._nvml.NVMLError:
            return "unknown"
        return name.decode() if isinstance(name, bytes) else str(name)

    def faults(self) -> list[str]:
        """Missing GPUs, lost ones, uncorrected memory errors, pages and rows to be replaced, XIDs, heat."""
        try:
            found = self._count()
            handles = [(index, self._handle(index)) for index in range(found)]
        except self._nvml.NVMLError as problem:
            return [f"NVML does not answer: {problem}"]
        wrong = [] if found == self._expected else [f"{found} GPUs are there, not {self._expected}"]
        self._note_xids(handles)
        for index, handle in handles:
            name = f"GPU {index} ({handle if isinstance(handle, str) else self._uuid(handle)})"
            wrong.extend(f"{name} {what}" for what in self._of_one(index, handle))
        return wrong

    def release(self) -> None:
        """End all use of NVML; the next check begins it anew, and listens anew."""
        self._xids.clear()
        self._free_events()
        self._open = False
        with contextlib.suppress(self._nvml.NVMLError):
            self._nvml.nvmlShutdown()

    def _handle(self, index: int) -> Nvml:
        """NVML's handle of one GPU, or what NVML says instead."""
        try:
            return self._nvml.nvmlDeviceGetHandleByIndex(index)
        except self._nvml.NVMLError as problem:
            return str(problem)

    def _uuid(self, handle: Nvml) -> str:
        try:
            uuid = self._nvml.nvmlDeviceGetUUID(handle)
        except self._nvml.NVMLError:
            return "no UUID"
        return uuid.decode() if isinstance(uuid, bytes) else str(uuid)

    def _of_one(self, index: int, handle: Nvml) -> list[str]:
        if isinstance(handle, str):
            return ["cannot be reached"]
        nvml, wrong = self._nvml, []
        try:
            errors = self._asked(
                lambda: nvml.nvmlDeviceGetTotalEccErrors(
                    handle, nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC
                )
            )
            rows = self._asked(lambda: nvml.nvmlDeviceGetRemappedRows(handle))
            pages = self._asked(lambda: nvml.nvmlDeviceGetRetiredPagesPendingStatus(handle))
            heat = self._asked(lambda: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU))
        except nvml.NVMLError as problem:
            return [f"does not answer: {problem}"]
        if errors:
            wrong.append(f"has {errors} uncorrected memory errors")
        if rows and rows[3]:
            wrong.append("has failed to remap a faulty memory row")
        if (rows and rows[2]) or pages:
            wrong.append("has memory to be replaced at its next reset")
        if heat and heat > self._max_temperature:
            wrong.append(f"is at {heat} degrees, over {self._max_temperature}")
        if xids := self._xids.get(index):
            wrong.append(f"has reported XID {', '.join(map(str, sorted(xids)))}")
        return wrong

    def _asked(self, question: Callable[[], Nvml]) -> Nvml:
        """The answer, or None when this GPU does not know such a thing."""
        try:
            return question()
        except (
            self._nvml.NVMLError_NotSupported, self._nvml.NVMLError_FunctionNotFound, self._nvml.NVMLError_NoPermission,
        ):  # fmt: skip
            return None

    def _note_xids(self, handles: list[tuple[int, Nvml]]) -> None:
        """Take note of the critical XIDs that came since the last time."""
        nvml = self._nvml
        try:
            if self._events is None:
                self._events = nvml.nvmlEventSetCreate()
                for _, handle in handles:
                    self._listen(handle)
            for _ in range(_MOST_XIDS):
                event = nvml.nvmlEventSetWait_v2(self._events, 0)
                if event.eventData not in HARMLESS_XIDS:
                    self._xids.setdefault(nvml.nvmlDeviceGetIndex(event.device), set()).add(event.eventData)
        except nvml.NVMLError_Timeout:
            return  # no more of them
        except nvml.NVMLError:
            self._free_events()  # listen anew next time; a GPU that fails says so in its other answers

    def _listen(self, handle: Nvml) -> None:
        nvml = self._nvml
        if not isinstance(handle, str):
            self._asked(lambda: nvml.nvmlDeviceRegisterEvents(handle, nvml.nvmlEventTypeXidCriticalError, self._events))

    def _free_events(self) -> None:
        if self._events is not None:
            with contextlib.suppress(self._nvml.NVMLError):  # it may be of a driver that is gone
                self._nvml.nvmlEventSetFree(self._events)
            self._events = None
