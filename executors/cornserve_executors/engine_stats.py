"""Prometheus metrics of an engine, declared as the fields of a class."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, Self, overload

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

from cornserve.observe.histogram import SECONDS, Histogram


class _Number:
    """A gauge or a counter."""

    def __init__(self, family: type[GaugeMetricFamily | CounterMetricFamily], help: str) -> None:
        self.family = family
        self.help = help

    def __set_name__(self, owner: type[EngineStats], name: str) -> None:
        self._name = name

    @overload
    def __get__(self, stats: None, owner: type[EngineStats]) -> Self: ...
    @overload
    def __get__(self, stats: EngineStats, owner: type[EngineStats]) -> float: ...
    def __get__(self, stats: EngineStats | None, owner: type[EngineStats]) -> Self | float:
        return self if stats is None else stats.numbers[self._name]

    def __set__(self, stats: EngineStats, value: float) -> None:
        stats.numbers[self._name] = value


class _Distribution:
    """A histogram."""

    family = HistogramMetricFamily

    def __init__(self, help: str, bounds: Sequence[float]) -> None:
        self.help = help
        self.bounds = bounds

    def __set_name__(self, owner: type[EngineStats], name: str) -> None:
        self._name = name

    @overload
    def __get__(self, stats: None, owner: type[EngineStats]) -> Self: ...
    @overload
    def __get__(self, stats: EngineStats, owner: type[EngineStats]) -> Histogram: ...
    def __get__(self, stats: EngineStats | None, owner: type[EngineStats]) -> Self | Histogram:
        return self if stats is None else stats.histograms[self._name]


def gauge(help: str) -> _Number:
    return _Number(GaugeMetricFamily, help)


def counter(help: str) -> _Number:
    return _Number(CounterMetricFamily, help)


def histogram(help: str, bounds: Sequence[float] = SECONDS) -> _Distribution:
    return _Distribution(help, bounds)


class EngineStats:
    """Base class of the metrics of an engine: each field that is a gauge, a counter or a histogram is one.

    Only one thread changes a field; other threads may read it. `class OmniStats(EngineStats, prefix="cornserve_omni")`
    """

    _prefix: ClassVar[str]
    _fields: ClassVar[dict[str, _Number | _Distribution]]

    def __init_subclass__(cls, prefix: str, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls._prefix = prefix
        cls._fields = {name: field for name, field in vars(cls).items() if isinstance(field, _Number | _Distribution)}

    def __init__(self) -> None:
        fields = self._fields.items()
        self.numbers: dict[str, float] = {name: 0 for name, field in fields if isinstance(field, _Number)}
        self.histograms = {name: Histogram(field.bounds) for name, field in fields if isinstance(field, _Distribution)}

    @contextmanager
    def counted(self, gauge: str) -> Iterator[None]:
        """Adds one to a gauge until the block ends."""
        self.numbers[gauge] += 1
        try:
            yield
        finally:
            self.numbers[gauge] -= 1

    def metrics(self) -> Iterator[Metric]:
        return self._metrics((), {(): self})

    @classmethod
    def metrics_by(cls, label: str, stats: Iterable[tuple[str, Self]]) -> Iterator[Metric]:
        """Returns the metrics of several objects, each with the value of its label."""
        return cls._metrics((label,), {(value,): each for value, each in stats})

    @classmethod
    def _metrics(cls, labels: Sequence[str], stats: Mapping[tuple[str, ...], EngineStats]) -> Iterator[Metric]:
        for name, field in cls._fields.items():
            family = field.family(f"{cls._prefix}_{name}", field.help, labels=labels)
            for values, each in stats.items():
                if isinstance(family, HistogramMetricFamily):
                    each.histograms[name].add_to(family, values)
                else:
                    family.add_metric(values, each.numbers[name])
            yield family
