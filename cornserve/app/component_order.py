"""The order of an app's components: each one follows those whose output it consumes.

Otherwise, names are sorted, encoders first: the names of types then do not depend on which paths are deployed.
"""

from __future__ import annotations

from collections.abc import Iterable

from cornserve.task.component_parts import ComponentParts
from cornserve.task.dry_record import DryRecording


class ComponentOrder:
    """
    Args:
        recordings: those of all paths of the app. A component consumes the output of another one if an invocation of it
            consumes a tensor or a stream of an invocation of the other one.
    """

    def __init__(self, recordings: Iterable[DryRecording]) -> None:
        self._inputs: dict[str, set[str]] = {}
        """The components whose output a component consumes, some of them through others."""
        for recording in recordings:
            self._add(recording)
        self._positions: dict[str, int] = {}
        for component in sorted(self._inputs, key=lambda name: (not name.endswith("_encoder"), name)):
            self._place(component)
        self._parts = ComponentParts(self._inputs)

    def _add(self, recording: DryRecording) -> None:
        for invocation, components in recording.steps:
            for component in sorted(components):
                self._inputs.setdefault(component, set())
            for origin in invocation.origins:
                self._connect(recording.components[origin.invocation], components)

    def _connect(self, producers: Iterable[str], consumers: Iterable[str]) -> None:
        """Adds edges, except those that would close a cycle: a loop between components runs them several times."""
        for producer in sorted(producers):
            for consumer in sorted(consumers):
                if not self._precedes(consumer, producer):
                    self._inputs[consumer].add(producer)

    def _precedes(self, component: str, other: str) -> bool:
        return component == other or any(self._precedes(component, before) for before in self._inputs[other])

    def _place(self, component: str) -> None:
        for before in sorted(self._inputs[component]):
            self._place(before)
        self._positions.setdefault(component, len(self._positions))

    def sorted(self, components: Iterable[str]) -> tuple[str, ...]:
        return tuple(sorted(components, key=self._positions.__getitem__))

    def name(self, components: Iterable[str]) -> str:
        """Returns the name of a set of components, in which a component that has all its parts counts as one."""
        return "+".join(self._parts.joined(self.sorted(components)))

    def after(self) -> dict[str, tuple[str, ...]]:
        """Returns the components whose output each component consumes directly, in order."""
        return {component: self.sorted(self._direct_inputs(component)) for component in self.sorted(self._inputs)}

    def _direct_inputs(self, component: str) -> set[str]:
        inputs = self._inputs[component]
        return {before for before in inputs if not any(self._precedes(before, other) for other in inputs - {before})}
