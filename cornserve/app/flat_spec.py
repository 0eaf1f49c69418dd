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


def to_nested(spec: object) -> object:
    """Returns the JSON of `AppSpec` for a spec in the flat form. Anything else is returned unchanged.

    Raises `ValueError` for shares without numbers, and for fields of models in an app with source.
    """
    if not isinstance(spec, dict) or not _is_flat(spec):
        return spec
    rest = dict(spec)
    model, source = _moved(rest, _MODEL_FIELDS), _moved(rest, _SOURCE_FIELDS)
    if source.get("allow_paths") == []:
        del source["allow_paths"]
    if "id" not in model and model:
        names = ", ".join(model)
        raise ValueError(f"{names}: cannot be set for an app with source: remove it, or set it in the source")
    if source.keys() == {"allow_paths"}:
        raise ValueError("allow_paths: only code of an app with source uses paths: remove them")
    if "shares" in model:
        model["shares"] = _weights(model["shares"])
    if "restart" in rest:
        rest["restart"] = {"id": rest["restart"]} if rest["restart"] else None
    return rest | ({"model": model} if model else {}) | ({"source": source} if source else {})


def _is_flat(spec: Mapping[str, Any]) -> bool:
    model, source = spec.get("model"), spec.get("source")
    if isinstance(model, dict) or isinstance(source, dict):
        return False
    return isinstance(model, str) or isinstance(source, str) or spec.get("source_config_map") is not None


def _moved(spec: dict[str, Any], fields: Mapping[str, str]) -> dict[str, Any]:
    """Removes fields from the spec. Returns those that are set, by their names in a part of the nested form."""
    values = {nested: spec.pop(flat, None) for flat, nested in fields.items()}
    return {name: value for name, value in values.items() if value is not None}


def _weights(shares: Any) -> dict[str, int]:
    try:
        return weights_of(shares)
    except (AttributeError, OverflowError, TypeError) as error:
        raise ValueError("shares: give a number for each path") from error
