"""Peak performance and prices of GPUs, from datasheets and price lists."""

from __future__ import annotations

from importlib.resources import files
from typing import Annotated, Literal, Self

from pydantic import Field

from cornserve_planner.errors import InvalidInputError
from cornserve_planner.files.document import Document, DocumentPart
from cornserve_planner.model.document import Name
from cornserve_planner.model.problem import GpuType
from cornserve_planner.profiles.sourced_value import Bandwidth, Compute, HourlyPrice, PurchasePrice, Size

Dtype = Literal["bf16", "fp8", "fp4"]


class GpuDatasheet(DocumentPart):
    """
    Args:
        bandwidth: bytes/s of the memory. Only predictions need it and `flops`.
        flops: dense tensor-core FLOP/s with FP32 accumulation. Vendors often print twice as much, for sparse matrices.
        prices: list prices per hour from one or more sources. Use your own prices where they matter.
    """

    memory: Size
    bandwidth: Bandwidth | None = None
    flops: dict[Dtype, Compute] = Field(default_factory=dict)
    prices: tuple[HourlyPrice, ...] = ()
    purchase: PurchasePrice | None = None
    note: str = ""

    def peak(self, dtype: Dtype = "bf16") -> float:
        """Returns FLOP/s. Raises `InvalidInputError` for an unsupported data type."""
        if not self.flops:
            raise InvalidInputError("flops", "are not given: predictions need the GPU's FLOP/s")
        if dtype not in self.flops:
            raise InvalidInputError("dtype", f"the GPU does not support {dtype}: use one of {', '.join(self.flops)}")
        return self.flops[dtype].value

    def memory_speed(self) -> float:
        """Returns bytes/s. Raises `InvalidInputError` if they are not given."""
        if self.bandwidth is None:
            raise InvalidInputError("bandwidth", "is not given: predictions need the bandwidth of the GPU's memory")
        return self.bandwidth.value


class GpuCatalog(Document):
    """`format: cornserve-planner/gpus`."""

    kind = "gpus"

    gpus: Annotated[dict[Name, GpuDatasheet], Field(min_length=1)]

    @classmethod
    def shipped(cls) -> Self:
        return cls.read_shipped(files("cornserve_planner.profiles") / "data/gpus.yaml")

    def __getitem__(self, name: str) -> GpuDatasheet:
        if name not in self.gpus:
            raise InvalidInputError("gpu", f"unknown GPU type {name!r}: use one of {', '.join(self.gpus)}")
        return self.gpus[name]

    def types(self) -> tuple[GpuType, ...]:
        """Returns the GPU types for the planning problem, with the first price of each."""
        return tuple(
            GpuType(name, gpu.memory.value, gpu.prices[0].value if gpu.prices else None)
            for name, gpu in self.gpus.items()
        )
