from __future__ import annotations

import pytest

from cornserve.gpu_prices import GpuPriceError, GpuPrices


def test_a_type_has_its_price_or_that_of_all_types() -> None:
    prices = GpuPrices.parse(["2.5", "L4=0.8"])

    assert (prices.of("L4"), prices.of("H100"), prices.of(None)) == (0.8, 2.5, 2.5)


def test_types_without_a_price_are_unknown() -> None:
    prices = GpuPrices.parse(["L4=0.8"])

    assert (prices.of("L4"), prices.of("H100"), prices.of(None)) == (0.8, None, None)


@pytest.mark.parametrize("settings", [[], ["0"], ["2.5", "L4=0.8", "a-b.c_d=999999.999999"]])
def test_prices_are_passed_to_other_processes_as_arguments(settings: list[str]) -> None:
    prices = GpuPrices.parse(settings)

    assert GpuPrices.parse(prices.cli_arguments[1::2]) == prices


@pytest.mark.parametrize("setting", ["", "x", "-1", "nan", "inf", "1e3", "1000000", "=1", "a b=1", "L4=", "1.0000001"])
def test_an_invalid_price_is_rejected(setting: str) -> None:
    with pytest.raises(GpuPriceError, match="is not a price: give DOLLARS or TYPE=DOLLARS"):
        GpuPrices.parse([setting])


@pytest.mark.parametrize(("settings", "type"), [(["1", "2"], "all types"), (["L4=1", "L4=1"], "the type L4")])
def test_a_price_that_is_given_twice_is_rejected(settings: list[str], type: str) -> None:
    with pytest.raises(GpuPriceError, match=f"the price of {type} is given more than once"):
        GpuPrices.parse(settings)
