"""GPUs: simulated ones, and NVML's logic against a stand-in for the module ``pynvml``.

There is no NVIDIA driver where these tests run, so what NVML says is played by ``Nvml`` below. It is the only stand-in
in the agent's tests; it keeps to the names, shapes and errors of nvidia-ml-py. The last test holds it to that module.
"""

# ruff: noqa: N802, N815 - the names are NVML's

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest

from gpubudget.agent.config import Config
from gpubudget.agent.gpus import NvmlGPUs, SimulatedGPUs, open_gpus
from gpubudget.errors import InvalidInputError


class Nvml:
    """A driver with as many GPUs as it is told, each with what is set in ``card``."""

    NVMLError = pynvml.NVMLError
    NVMLError_NotSupported = pynvml.NVMLError_NotSupported
    NVMLError_FunctionNotFound = pynvml.NVMLError_FunctionNotFound
    NVMLError_NoPermission = pynvml.NVMLError_NoPermission
    NVMLError_Timeout = pynvml.NVMLError_Timeout
    NVML_MEMORY_ERROR_TYPE_UNCORRECTED = 1
    NVML_VOLATILE_ECC = 0
    NVML_TEMPERATURE_GPU = 0
    nvmlEventTypeXidCriticalError = 8

    def __init__(self, count: int) -> None:
        self.cards: list[dict[str, Any]] = [
            {"ecc": 0, "rows": (0, 0, 0, 0), "pages": 0, "heat": 40, "name": "NVIDIA H100", "uuid": f"GPU-{index}"}
            for index in range(count)
        ]
        self.broken: Exception | None = None
        self.xids: list[tuple[int, int]] = []
        self.opened = 0
        self.listening: set[int] = set()

    def nvmlInit(self) -> None:
        if self.broken:
            raise self.broken
        self.opened += 1

    def nvmlShutdown(self) -> None:
        self.opened -= 1
        self.listening.clear()

    def nvmlDeviceGetCount(self) -> int:
        assert self.opened == 1
        if self.broken:
            raise self.broken
        return len(self.cards)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        if not self.opened or index >= len(self.cards):
            raise pynvml.NVMLError(
                pynvml.NVML_ERROR_INVALID_ARGUMENT if self.opened else pynvml.NVML_ERROR_UNINITIALIZED
            )
        self._ask(index, "lost")
        return index

    def _ask(self, index: int, what: str) -> object:
        assert self.opened == 1
        said = self.cards[index].get(what)
        if isinstance(said, Exception):
            raise said
        return said

    def nvmlDeviceGetName(self, handle: int) -> object:
        return self._ask(handle, "name")

    def nvmlDeviceGetUUID(self, handle: int) -> object:
        return self._ask(handle, "uuid")

    def nvmlDeviceGetIndex(self, handle: int) -> int:
        return handle

    def nvmlDeviceGetTotalEccErrors(self, handle: int, error_type: int, counter: int) -> object:
        assert (error_type, counter) == (1, 0)
        return self._ask(handle, "ecc")

    def nvmlDeviceGetRemappedRows(self, handle: int) -> object:
        return self._ask(handle, "rows")

    def nvmlDeviceGetRetiredPagesPendingStatus(self, handle: int) -> object:
        return self._ask(handle, "pages")

    def nvmlDeviceGetTemperature(self, handle: int, sensor: int) -> object:
        assert sensor == 0
        return self._ask(handle, "heat")

    def nvmlEventSetCreate(self) -> str:
        return "events"

    def nvmlEventSetFree(self, events: str) -> None:
        assert events == "events"
        self.listening.clear()

    def nvmlDeviceRegisterEvents(self, handle: int, kind: int, events: str) -> None:
        assert (kind, events) == (8, "events")
        self._ask(handle, "events")
        self.listening.add(handle)

    def nvmlEventSetWait_v2(self, events: str, timeout: int) -> SimpleNamespace:
        assert (events, timeout) == ("events", 0)
        heard = [one for one in self.xids if one[0] in self.listening]
        if not heard:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_TIMEOUT)
        self.xids.remove(heard[0])
        return SimpleNamespace(device=heard[0][0], eventData=heard[0][1])


UNSUPPORTED = pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
UNKNOWN = pynvml.NVMLError(pynvml.NVML_ERROR_UNKNOWN)
LOST = pynvml.NVMLError(pynvml.NVML_ERROR_GPU_IS_LOST)


def test_simulated_gpus_are_ill_by_file(tmp_path: Path) -> None:
    """Simulated GPUs are well, until the file lists some as sick, and well again when it does not."""
    file = tmp_path / "simulated-gpus.json"
    gpus = open_gpus(Config(), 4, tmp_path)
    assert isinstance(gpus, SimulatedGPUs)
    assert (gpus.models(), gpus.faults()) == (("simulated",) * 4, [])
    file.write_text('{"sick": [3, 1]}')
    assert gpus.faults() == ["GPU 1 is sick (simulated)", "GPU 3 is sick (simulated)"]
    file.write_text('{"sick": []}')
    gpus.release()
    assert gpus.faults() == []


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"sick": 3}', '{"sick": ["x"]}', "{"])
def test_a_wrong_file_of_simulated_gpus_is_a_fault(tmp_path: Path, text: str) -> None:
    """A file that does not say what it should makes the check fail and does not end the agent."""
    (tmp_path / "simulated-gpus.json").write_text(text)
    assert open_gpus(Config(), 4, tmp_path).faults() == [
        f'{tmp_path}/simulated-gpus.json does not say {{"sick": [INDEX, ...]}}'
    ]


def test_healthy_gpus_have_no_faults() -> None:
    """GPUs with nothing wrong are counted and named."""
    gpus = NvmlGPUs(Nvml(2), None, 95)
    assert gpus.models() == ("NVIDIA H100", "NVIDIA H100")
    assert gpus.faults() == []


@pytest.mark.parametrize(
    ("card", "fault"),
    [
        ({"ecc": 2}, "has 2 uncorrected memory errors"),
        ({"rows": (1, 1, 0, 1)}, "has failed to remap a faulty memory row"),
        ({"rows": (1, 0, 1, 0)}, "has memory to be replaced at its next reset"),
        ({"pages": 1}, "has memory to be replaced at its next reset"),
        ({"heat": 96}, "is at 96 degrees, over 95"),
        ({"heat": UNKNOWN}, "does not answer: Unknown Error"),
    ],
)
def test_faults_are_named_with_their_gpu(card: dict[str, Any], fault: str) -> None:
    """Each fault is one sentence with the GPU's index, UUID and the numbers."""
    nvml = Nvml(2)
    gpus = NvmlGPUs(nvml, None, 95)
    nvml.cards[1].update(card)
    assert gpus.faults() == [f"GPU 1 (GPU-1) {fault}"]


def test_what_a_gpu_does_not_know_is_no_fault() -> None:
    """GPUs without ECC, row remapping or events are not ill for that."""
    nvml = Nvml(1)
    nvml.cards[0].update(dict.fromkeys(("ecc", "rows", "pages", "events"), UNSUPPORTED))
    nvml.cards[0]["heat"] = pynvml.NVMLError(pynvml.NVML_ERROR_NO_PERMISSION)
    assert NvmlGPUs(nvml, None, 95).faults() == []


def test_a_lost_gpu_and_a_missing_one_are_faults() -> None:
    """A GPU that fell off the bus, and a number other than the configured one, are faults."""
    nvml = Nvml(2)
    gpus = NvmlGPUs(nvml, 3, 95)
    nvml.cards[0]["lost"] = LOST
    nvml.cards[1]["uuid"] = LOST
    assert gpus.models() == ("unknown", "NVIDIA H100", "unknown")
    assert gpus.faults() == [
        "2 GPUs are there, not 3",
        f"GPU 0 ({LOST}) cannot be reached",
    ]


def test_a_driver_that_fails_later_is_a_fault() -> None:
    """When NVML itself does not answer, that is the fault; it is asked again the next time."""
    nvml = Nvml(1)
    gpus = NvmlGPUs(nvml, None, 95)
    nvml.broken = UNKNOWN
    assert gpus.faults() == ["NVML does not answer: Unknown Error"]
    nvml.broken = None
    assert gpus.faults() == []


def test_no_driver_at_the_start() -> None:
    """Without a driver the agent says what to do; with a configured number the host is ill instead."""
    nvml = Nvml(0)
    nvml.broken = pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)
    with pytest.raises(InvalidInputError, match=r"this host shows no GPUs.*--simulate-gpus 8"):
        NvmlGPUs(nvml, None, 95)
    gpus = NvmlGPUs(nvml, 8, 95)
    assert gpus.models() == ("unknown",) * 8
    assert gpus.faults()[0].startswith("NVML does not answer")


def test_xids_stay_until_repair() -> None:
    """A critical XID is remembered until repair steps run; those that programs cause are not noted."""
    nvml = Nvml(2)
    gpus = NvmlGPUs(nvml, None, 95)
    assert gpus.faults() == []
    nvml.xids = [(0, 13), (1, 79), (1, 48)]
    assert gpus.faults() == ["GPU 1 (GPU-1) has reported XID 48, 79"]
    assert gpus.faults() == ["GPU 1 (GPU-1) has reported XID 48, 79"]
    gpus.release()
    assert nvml.opened == 0  # a GPU in use cannot be reset
    assert gpus.faults() == []
    nvml.xids = [(0, 79)]
    assert gpus.faults() == ["GPU 0 (GPU-0) has reported XID 79"]


def test_the_stand_in_keeps_to_the_module() -> None:
    """Every name of the stand-in exists in nvidia-ml-py, and constants have the same values."""
    for name, value in vars(Nvml).items():
        if name.upper().startswith("NVML"):
            real = getattr(pynvml, name)
            assert callable(value) == callable(real)
            assert callable(value) or value == real
