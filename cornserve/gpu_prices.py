"""The prices of GPUs and slots: `cornserve up --gpu-price`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

_PRICE = re.compile(
    r"((?P<type>[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)=)?(?P<dollars>[0-9]{1,6}(\.[0-9]{1,6})?)"
)


class GpuPriceError(ValueError):
    """A setting is not a price. The message is for users."""


@dataclass(frozen=True, slots=True)
class GpuPrices:
    """Dollars per hour of one GPU or slot.

    Args:
        by_type: types with their prices. The empty type has the price of all that are not listed.
    """

    by_type: tuple[tuple[str, float], ...] = ()

    @classmethod
    def parse(cls, settings: Sequence[str]) -> Self:
        """Parses the values of `--gpu-price`. Raises `GpuPriceError`."""
        prices: dict[str, float] = {}
        for setting in settings:
            found = _PRICE.fullmatch(setting)
            if found is None:
                raise GpuPriceError(
                    f"{setting!r} is not a price: give DOLLARS or TYPE=DOLLARS per hour of a GPU or slot, such as 2.5 "
                    "or L4=0.8"
                )
            name = found["type"] or ""
            if name in prices:
                described = f"the type {name}" if name else "all types"
                raise GpuPriceError(f"the price of {described} is given more than once: give it once")
            prices[name] = float(found["dollars"])
        return cls(tuple(prices.items()))

    @property
    def settings(self) -> list[str]:
        """The texts that `parse` reads."""
        return [f"{name}={price:f}" if name else f"{price:f}" for name, price in self.by_type]

    @property
    def cli_arguments(self) -> list[str]:
        """The command-line arguments from which another process parses equal prices."""
        return [argument for setting in self.settings for argument in ("--gpu-price", setting)]

    def of(self, gpu_type: str | None) -> float | None:
        """Returns the price of a GPU or slot of a type, or None if it is unknown."""
        prices = dict(self.by_type)
        return prices.get(gpu_type or "", prices.get(""))
