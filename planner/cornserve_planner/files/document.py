"""Base classes of files that users write: YAML or JSON with a format and a version.

Parsing is strict: it rejects unknown fields, duplicate fields, numbers in quotation marks, and NaN. Otherwise, a typing
error in a model or a profile would silently change the plan.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Hashable
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, ClassVar, NoReturn, Self

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from cornserve_planner.errors import InvalidInputError
from cornserve_planner.files.bounded_text import read_document

FAMILY = "cornserve-planner"

LONGEST_NUMBER = 1000
"""Characters of a whole number in YAML, which may be written in base 60."""

LARGEST = 100_000
"""Maximum number of values in a YAML document, counting each use of an alias."""


class DocumentPart(BaseModel):
    """Base class of the parts of a document."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", allow_inf_nan=False)


class Document(DocumentPart):
    """Base class of documents. A subclass sets its `kind`: `format: cornserve-planner/KIND`."""

    kind: ClassVar[str]
    version: ClassVar[int] = 1

    @classmethod
    def read(cls, path: Path) -> Self:
        """Reads a `.json`, `.yaml` or `.yml` file. Raises `InvalidInputError` naming file, field and reason."""
        return cls.parse(read_document(path), source=path.name)

    @classmethod
    def read_shipped(cls, file: Traversable) -> Self:
        """Reads a document from the package's data."""
        return cls.parse(file.read_text(encoding="utf-8"), source=file.name)

    @classmethod
    def parse(cls, text: str, source: str) -> Self:
        """Parses a document. `source` names it in errors; a source ending in `.json` is parsed as JSON, otherwise as
        YAML."""
        try:
            fields = _load(text, as_json=source.endswith(".json"))
            cls._pop_header(fields)
            # Through JSON, strict mode still distinguishes 1 from "1" and true, but accepts lists for tuples.
            return cls.model_validate_json(json.dumps(fields, default=str))
        except ValidationError as error:
            raise input_error_from(error, f"{FAMILY}/{cls.kind}").within(source) from error
        except InvalidInputError as error:
            raise error.within(source) from error

    @classmethod
    def _pop_header(cls, fields: Any) -> None:
        if not isinstance(fields, dict):
            raise InvalidInputError("document", f"must be a mapping of fields, not {_shown(fields)}")
        wanted = f"{FAMILY}/{cls.kind}"
        if "format" not in fields:
            raise InvalidInputError("format", f"is missing: write {wanted!r}")
        if (found := fields.pop("format")) != wanted:
            raise InvalidInputError("format", f"must be {wanted!r}, not {_shown(found)}")
        if "version" not in fields:
            raise InvalidInputError("version", f"is missing: write {cls.version}")
        found = fields.pop("version")
        if found is True or found != cls.version:
            raise InvalidInputError(
                "version", f"unsupported version {_shown(found)}: this release reads version {cls.version}"
            )

    def dump(self) -> str:
        """Returns JSON that `parse` accepts."""
        header = {"format": f"{FAMILY}/{self.kind}", "version": self.version}
        return json.dumps(header | self.model_dump(mode="json"), indent=2, ensure_ascii=False) + "\n"

    @property
    def fields(self) -> dict[str, Any]:
        """The fields for JSON or YAML that `parse` accepts, without those that have their default value."""
        header = {"format": f"{FAMILY}/{self.kind}", "version": self.version}
        return header | self.model_dump(mode="json", exclude_defaults=True)

    def dump_yaml(self) -> str:
        """Returns YAML that `parse` accepts, without fields that have their default value."""
        text: str = yaml.safe_dump(self.fields, sort_keys=False, default_flow_style=None, width=120, allow_unicode=True)
        return text

    def write(self, path: Path) -> None:
        path.write_text(self.dump(), encoding="utf-8")


def _load(text: str, *, as_json: bool) -> Any:
    try:
        if as_json:
            return json.loads(
                text, object_pairs_hook=reject_duplicates, parse_constant=_refuse_constant, parse_int=parse_whole
            )
        return yaml.load(text, Loader=_StrictLoader)
    except json.JSONDecodeError as error:
        raise InvalidInputError(f"line {error.lineno}", f"invalid JSON: {error.msg}") from error
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise InvalidInputError(f"line {line}", f"invalid YAML: {error.problem}") from error
    except yaml.YAMLError as error:
        raise InvalidInputError("document", f"invalid YAML: {' '.join(str(error).split())}") from error
    except RecursionError as error:
        raise InvalidInputError("document", "is nested too deeply: use fewer levels") from error
    except ValueError as error:
        raise InvalidInputError("document", f"has a value that cannot be read: {error}") from error


def reject_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Builds a JSON object. Raises `InvalidInputError` for a duplicate field: `json` would use the last value."""
    fields: dict[str, Any] = {}
    for name, value in pairs:
        if name in fields:
            raise InvalidInputError(name, "is given twice: remove one of them")
        fields[name] = value
    return fields


def parse_whole(text: str) -> int:
    """Returns a whole number. Raises `ValueError` for one that cannot be printed."""
    if len(text) > LONGEST_NUMBER:
        raise ValueError(f"a number has {len(text)} characters")
    return int(text)


def _refuse_constant(constant: str) -> NoReturn:
    raise InvalidInputError("document", f"{constant} is not a number in JSON: write a finite number")


class _StrictLoader(yaml.SafeLoader):
    """Rejects duplicate fields, keys that are not text, aliases that multiply the document, and whole numbers that
    cannot be printed. Parses 1e-3 as a number, like JSON."""

    def get_single_node(self) -> yaml.Node | None:
        node: yaml.Node | None = super().get_single_node()
        if node is not None and _expanded_size(node, {}) > LARGEST:
            raise InvalidInputError(
                "document", f"its aliases expand to more than {LARGEST:,} values: write the values instead"
            )
        return node

    def construct_yaml_int(self, node: yaml.ScalarNode) -> int:
        if len(node.value) > LONGEST_NUMBER:
            raise ValueError(f"a number has {len(node.value)} characters")
        return int(super().construct_yaml_int(node))

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise InvalidInputError(f"line {key.start_mark.line + 1}", "a field's name must be text")
            if key.value in seen and key.tag != "tag:yaml.org,2002:merge":
                raise InvalidInputError(
                    f"line {key.start_mark.line + 1}", f"{key.value!r} is given twice: remove one of them"
                )
            seen.add(key.value)
        return super().construct_mapping(node, deep)


def _expanded_size(node: yaml.Node, sizes: dict[int, float]) -> float:
    """Returns the number of values in a node, counting each use of an alias. Infinite if a node contains itself."""
    if id(node) not in sizes:
        sizes[id(node)] = math.inf
        parts: list[yaml.Node] = []
        if isinstance(node, yaml.MappingNode):
            parts = [part for pair in node.value for part in pair]
        elif isinstance(node, yaml.SequenceNode):
            parts = node.value
        sizes[id(node)] = 1 + sum(_expanded_size(part, sizes) for part in parts)
    return sizes[id(node)]


_StrictLoader.add_constructor("tag:yaml.org,2002:int", _StrictLoader.construct_yaml_int)
_StrictLoader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?(\d+(\.\d*)?|\.\d+)[eE][-+]?\d+"), list("-+.0123456789")
)


def input_error_from(error: ValidationError, kind: str) -> InvalidInputError:
    """Converts the first pydantic error. The other errors often follow from it."""
    found = error.errors(include_url=False)[0]
    where = ".".join(str(part) for part in found["loc"]) or "document"
    if found["type"] == "missing":
        return InvalidInputError(where, f"is missing: add this field of {kind}")
    if found["type"] == "extra_forbidden":
        return InvalidInputError(where, f"is not a field of {kind}: remove it or correct its name")
    reason = found["msg"].removeprefix("Value error, ")
    if not found["loc"] and " " not in (place := reason.partition(": ")[0]):  # a check of the whole document
        where, reason = place, reason.partition(": ")[2]
    if reason.startswith("Input should be "):
        reason = f"must be {reason.removeprefix('Input should be ')}, not {_shown(found['input'])}"
    return InvalidInputError(where, reason)


def _shown(value: Any) -> str:
    text = " ".join(repr(value).split())
    return text if len(text) <= 60 else f"{text[:57]}..."
