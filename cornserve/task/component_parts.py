"""Parts of components, which some paths of an app run apart.

A unit task that runs a part of the component `llm` names it `llm:prefill`. If a path of the app runs parts, the
component counts as all of these parts on the other paths.
"""

from __future__ import annotations

from collections.abc import Iterable


def whole(component: str) -> str:
    """Returns the component of a part, or the component itself."""
    return component.partition(":")[0]


def wholes(components: Iterable[str]) -> frozenset[str]:
    """Returns the components of parts, and the other components themselves."""
    return frozenset(map(whole, components))


class ComponentParts:
    """The parts of the components of an app.

    Args:
        components: all components of an app, and their parts.
    """

    def __init__(self, components: Iterable[str]) -> None:
        self._parts: dict[str, set[str]] = {}
        for component in components:
            if (of := whole(component)) != component:
                self._parts.setdefault(of, set()).add(component)

    def split(self, components: Iterable[str]) -> frozenset[str]:
        """Returns components with all parts in place of those that have parts."""
        return frozenset(part for component in components for part in self._parts.get(component, (component,)))

    def joined(self, components: Iterable[str]) -> list[str]:
        """Returns components with a component in place of all of its parts, in order."""
        names = list(components)
        complete = {name for name, parts in self._parts.items() if parts.issubset(names)}
        return list(dict.fromkeys(whole(name) if whole(name) in complete else name for name in names))
