from __future__ import annotations

from pathlib import Path

import pytest

from cornserve.control.launcher.local.slot_types import parse_slot_types
from cornserve.control.local_instance.options import InstanceOptions
from cornserve.gpu_prices import GpuPriceError, GpuPrices
from cornserve.home import Home


@pytest.mark.parametrize(
    ("slots", "settings", "typed", "untyped"),
    [
        (["small=1@0.5"], [], 0.5, 0.5),
        (["small=1@0.5"], ["2"], 0.5, 2),
        (["small=1@0.5", "big=1"], [], 0.5, None),
        (["small=1"], ["small=0.25"], 0.25, None),
        ([], [], None, None),
    ],
)
def test_slots_have_their_prices(
    tmp_path: Path, slots: list[str], settings: list[str], typed: float | None, untyped: float | None
) -> None:
    options = InstanceOptions(
        home=Home(tmp_path), slot_types=parse_slot_types(slots), gpu_prices=GpuPrices.parse(settings)
    )

    assert (options.known_prices.of("small"), options.known_prices.of(None)) == (typed, untyped)


def test_a_type_of_slots_with_two_prices_is_refused(tmp_path: Path) -> None:
    options = InstanceOptions(
        home=Home(tmp_path), slot_types=parse_slot_types(["small=1@0.5"]), gpu_prices=GpuPrices.parse(["small=2"])
    )

    with pytest.raises(GpuPriceError, match="the type small is given more than once"):
        _ = options.known_prices
