"""Estimates of the device time of measurements, and the slots that they need."""

from __future__ import annotations

import re

import pytest

from cornserve.control.launcher.base import SlotCount
from cornserve.profiler.cost_estimate import BudgetTooSmallError, MeasurementCost, check_budget
from cornserve.profiler.device import Device, NoSlotsError
from cornserve.profiler.results import Conditions, LoadLevel, MixMeasurement, MixShare, OptionResults
from cornserve_echo.stages import StageTask

LEVEL = LoadLevel(concurrency=1, rate=0.1, standard_error=0.01, seconds=10, p50=10, p99=10, requests=26)


def results(*startup: float) -> OptionResults:
    measurement = MixMeasurement(
        mix=(MixShare(components=("llm",), share=1),),
        requests="a",
        rate=0.1,
        standard_error=0.01,
        replicas=1,
        is_saturated=True,
        levels=(LEVEL,),
        poisson=None,
        date="2026-01-01",
    )
    conditions = Conditions(model="", versions={}, device="small", hardware="CPU", driver="6.1")
    return OptionResults(
        task="StageTask",
        settings={},
        spec=StageTask(seconds={"llm": 10}).spec,
        conditions=conditions,
        startup=startup,
        measurements=(measurement,),
    )


def test_the_cost_follows_from_earlier_starts_and_latencies() -> None:
    known = MeasurementCost.estimate("llm", 2, results(50, 60, 90))
    assert (known.least_start, known.least_load) == (60, 5 * 10)
    unknown = MeasurementCost.estimate("llm", 1, None)
    assert (unknown.least_start, unknown.least_load) == (1, 2)


def test_a_budget_that_does_not_suffice_for_a_request_of_each_measurement_is_refused() -> None:
    costs = [*(MeasurementCost("encoder", 1),) * 2, MeasurementCost("llm", 2, start=20, latency=4)]
    check_budget(costs, 85)
    check_budget([], 1)
    shortage = "starts take at least 41 s (options: 2), and measurements 44 s (mixes: 3): give at least --budget 85s"
    with pytest.raises(BudgetTooSmallError, match=re.escape(shortage)):
        check_budget(costs, 84)


@pytest.mark.parametrize(
    ("free", "message"),
    [
        (
            2,
            "llm cannot be measured: a replica needs 3 CPU slots of the type small, but 4 exist and 2 are free: delete",
        ),
        (3, ""),
    ],
)
def test_options_for_which_slots_are_missing_are_refused_by_name(free: int, message: str) -> None:
    device = Device("small", "CPU", "6.1", "small", SlotCount("CPU slot", 4, free))
    needs = {"encoder": 1, "llm": 3}
    if not message:
        device.check_slots(needs)
        return
    with pytest.raises(NoSlotsError, match=message):
        device.check_slots(needs)


def test_an_option_that_needs_more_slots_than_exist_is_refused() -> None:
    device = Device("small", "CPU", "6.1", "small", SlotCount("CPU slot", 2, 2))
    with pytest.raises(NoSlotsError, match="3 CPU slots of the type small, but 2 exist and 2 are free: start more"):
        device.check_slots({"llm": 3})
