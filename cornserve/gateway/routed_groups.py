"""The executor groups in the routes of apps."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Set


class RoutedGroups:
    """Finds the apps whose routes contain a group, without a search of all routes."""

    def __init__(self) -> None:
        self._groups: dict[str, Set[str]] = {}
        """The groups of each app."""
        self._apps: defaultdict[str, set[str]] = defaultdict(set)
        """The apps of each group."""

    def update(self, app: str, groups: Set[str]) -> Set[str]:
        """Replaces the groups of an app. Returns the old and the new ones."""
        old = self._groups.pop(app, set())
        if groups:
            self._groups[app] = groups
        for group in groups - old:
            self._apps[group].add(app)
        for group in old - groups:
            self._apps[group].remove(app)
            if not self._apps[group]:
                del self._apps[group]
        return old | groups

    def apps(self, group: str) -> Set[str]:
        return self._apps.get(group, set())
