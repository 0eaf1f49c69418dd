"""The flat form of specs, which stored apps, routes and clients of earlier versions have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cornserve.app.path_weights import weights_of

_MODEL_FIELDS = {
    "model": "id",
    "revision": "revision",
    "model_summary": "summary",
    "lora": "lora",
    "drawer": "drawer",
    "drawer_summary": "drawer_summary",
    "media_options": "media_options",
    "storage": "storage",
    "shares": "shares",
}
_SOURCE_FIELDS = {"source": "inline", "source_config_map": "config_map_key_ref", "allow_paths": "allow_paths"}


def is_flat(spec: object) -> bool:
    """Whether the JSON of a spec has the flat form."""
    return isinstance(spec, dict) and (
        isinstance(spec.get("model"), str) or isinstance(spec.get("source"), str) or "source_config_map" in spec
    )


def nested_spec(flat: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the JSON of `AppSpec` for a spec in the flat form, whose fields are not checked.

    Raises `ValueError` if a share is not a finite number of at least 0.
    """
    given = {name: value for name, value in flat.items() if value not in (None, "", [])}
    parts = {
        part: {nested: given.pop(name) for name, nested in fields.items() if name in given}
        for part, fields in (("model", _MODEL_FIELDS), ("source", _SOURCE_FIELDS))
    }
    if isinstance(shares := parts["model"].get("shares"), dict):
        parts["model"]["shares"] = weights_of(shares)
    if "restart" in given:
        given["restart"] = {"id": given["restart"]}
    return given | {part: fields for part, fields in parts.items() if fields}
