"""Settings of `cornserve simulate`, from the texts of its options."""

from __future__ import annotations

from cornserve_planner.errors import PlannerError
from cornserve_planner.simulation.racks import RackTopology
from cornserve_planner.terminal import parse_bandwidth, parse_count, parse_settings, parse_times

AUTOSCALING_TIMES = ("window_seconds", "shrink_seconds", "dwell_seconds")


def parse_autoscaling(texts: list[str]) -> tuple[dict[str, float | None], dict[str, float]]:
    """Returns the rates of options, and the times by name. A rate of None follows from the target."""
    options, times = parse_times("--autoscale", texts)
    if unknown := sorted(times.keys() - {*AUTOSCALING_TIMES}):
        raise PlannerError(f"--autoscale: {unknown[0]} is not simulated: use {', '.join(AUTOSCALING_TIMES)}")
    found: dict[str, float | None] = dict.fromkeys(text for text in options if "=" not in text)
    given = [text for text in options if "=" in text]
    rates = parse_settings("--autoscale", "OPTION=RATE, a name and a number", given, float)
    if len(found) + len(rates) < len(options) or found.keys() & rates.keys():
        raise PlannerError("--autoscale: an option is given twice: remove one of them")
    return found | rates, times


def parse_failure(text: str) -> tuple[str, float]:
    """Returns the option and the seconds of `OPTION@SECONDS`."""
    option, _, seconds = text.rpartition("@")
    try:
        return option, float(seconds)
    except ValueError:
        raise PlannerError(f"--fail must be OPTION@SECONDS, such as encoder@60, not {text!r}") from None


def parse_startup(text: str) -> tuple[float, ...]:
    try:
        return tuple(float(each) for each in text.split(","))
    except ValueError:
        raise PlannerError(f"--startup must be seconds, such as 30 or 25,30,60, not {text!r}") from None


def parse_racks(text: str) -> RackTopology:
    """Returns the racks of `GPUS:RATE:SECONDS`."""
    gpus, _, rest = text.partition(":")
    rate, _, seconds = rest.partition(":")
    try:
        bandwidth = parse_bandwidth(rate, "--racks")
        return RackTopology(parse_count(gpus), bandwidth, float(seconds))
    except ValueError:
        raise PlannerError(f"--racks must be GPUS:RATE:SECONDS, such as 72:3.2Tbit/s:5e-6, not {text!r}") from None
