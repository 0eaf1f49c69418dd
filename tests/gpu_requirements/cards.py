"""Cards that vLLM's platform for CUDA describes instead of asking the driver."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class Card:
    name: str
    capability: tuple[int, int]
    gib: int
    multiprocessors: int

    def __str__(self) -> str:
        return self.name


H100 = Card("NVIDIA H100 80GB HBM3", (9, 0), 80, 132)
A100 = Card("NVIDIA A100-SXM4-40GB", (8, 0), 40, 108)
L4 = Card("NVIDIA L4", (8, 9), 24, 58)
T4 = Card("Tesla T4", (7, 5), 16, 40)
B200 = Card("NVIDIA B200", (10, 0), 180, 148)
CARDS = (H100, A100, L4, T4, B200)


def described_platform() -> Any:
    """Returns vLLM's platform for CUDA with a settable `card`, which all GPUs of the machine are.

    Needs `libcuda.so.1`: see the fixture `kernels`.
    """
    from vllm.platforms.cuda import CudaPlatformBase
    from vllm.platforms.interface import DeviceCapability

    class DescribedPlatform(CudaPlatformBase):  # type: ignore[misc]
        card = H100

        @classmethod
        def get_device_capability(cls, device_id: int = 0) -> DeviceCapability:
            return DeviceCapability(*cls.card.capability)

        @classmethod
        def get_device_name(cls, device_id: int = 0) -> str:
            return cls.card.name

        @classmethod
        def get_device_total_memory(cls, device_id: int = 0) -> int:
            return cls.card.gib * GIB

        @classmethod
        def num_compute_units(cls, device_id: int = 0) -> int:
            return cls.card.multiprocessors

        @classmethod
        def is_integrated_gpu(cls, device_id: int = 0) -> bool:
            return False

        @classmethod
        def is_fully_connected(cls, physical_device_ids: list[int]) -> bool:
            return True

        @classmethod
        def device_count(cls) -> int:
            return 8

    return DescribedPlatform()
