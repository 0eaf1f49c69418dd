"""Renders the reference of the chart's values from the comments in `values.yaml`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

import yaml

HEADER = """\
# Chart values

<!-- Generated from helm/cornserve/values.yaml by `make manifests`. -->

The values of the Helm chart `helm/cornserve`. The chart refuses unknown names and values of a wrong type.
"""


class UndocumentedValueError(ValueError):
    """A value has no comment above it."""


@dataclass(frozen=True, slots=True)
class ChartValue:
    name: str
    default: object
    description: str

    @property
    def row(self) -> str:
        default = json.dumps(self.default, ensure_ascii=False)
        cells = (f"`{self.name}`", f"`{default}`", self.description)
        return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def values_reference(source: str) -> str:
    """Returns a page with one table for each top-level name. Raises `UndocumentedValueError`."""
    sections: dict[str, list[ChartValue]] = {}
    for value in chart_values(source):
        sections.setdefault(value.name.partition(".")[0], []).append(value)
    return HEADER + "".join(_section(name, values) for name, values in sections.items())


def chart_values(source: str) -> Iterator[ChartValue]:
    """Yields all values in the order of the file.

    A comment above a name describes the name with everything in it. Names without a comment are groups of values.
    """
    root = yaml.compose(source, Loader=yaml.SafeLoader)
    assert isinstance(root, yaml.MappingNode)
    yield from _values_in(root, "", source.splitlines())


def _values_in(mapping: yaml.MappingNode, prefix: str, lines: list[str]) -> Iterator[ChartValue]:
    for key, node in mapping.value:
        name = f"{prefix}{key.value}"
        description = _comment_above(lines, key.start_mark.line)
        if description:
            yield ChartValue(name, yaml.safe_load(yaml.serialize(node)), description)
        elif isinstance(node, yaml.MappingNode) and node.value:
            yield from _values_in(node, f"{name}.", lines)
        else:
            raise UndocumentedValueError(f"the value {name} has no description: write a comment above it")


def _comment_above(lines: list[str], line: int) -> str:
    found: list[str] = []
    while line > 0 and lines[line - 1].lstrip().startswith("#"):
        line -= 1
        found.insert(0, lines[line].lstrip().removeprefix("#").strip())
    return " ".join(found)


def _section(name: str, values: list[ChartValue]) -> str:
    rows = "\n".join(value.row for value in values)
    return f"\n## {name}\n\n| Value | Default | Description |\n|---|---|---|\n{rows}\n"
