"""Discriminators of unions in request bodies. An error names the field and the known types, not each type's errors."""

from __future__ import annotations

from pydantic import Discriminator


def by_type(name: str, *types: str, default: str | None = None) -> Discriminator:
    """Returns a discriminator by the field `type` of objects. The tags are `NAME:TYPE`.

    Args:
        default: the type of objects without a type. None: they are refused.
    """

    def tag(value: object) -> str | None:
        found = value.get("type") if isinstance(value, dict) else getattr(value, "type", None)
        kind = default if found is None else found
        return f"{name}:{kind}" if kind in types else None

    *first, last = map(repr, types)
    message = f"invalid {name} type: use {', '.join(first)} or {last}"
    return Discriminator(tag, custom_error_type=name, custom_error_message=message)


def text_or_list(name: str) -> Discriminator:
    """Returns a discriminator of texts and lists. The tags are `NAME:text` and `NAME:list`."""

    def tag(value: object) -> str | None:
        return f"{name}:text" if isinstance(value, str) else f"{name}:list" if isinstance(value, list) else None

    return Discriminator(tag, custom_error_type=name, custom_error_message="must be a text or a list")
