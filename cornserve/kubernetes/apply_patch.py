"""The body of a server-side apply, which the API server reads as YAML."""

from __future__ import annotations

import json
import re

from cornserve.kubernetes.resources import JsonObject

APPLY = "application/apply-patch+yaml; charset=utf-8"
"""The content type. Without parameters, `kubernetes.aio` would encode the body itself."""

_ESCAPE = re.compile(r"\\(?:u(d[89ab][0-9a-f]{2})\\u(d[c-f][0-9a-f]{2})|.)")


def to_yaml(body: JsonObject) -> str:
    """Returns the body as JSON that is also YAML: only ASCII, and no surrogate pairs, which YAML does not know."""
    return _ESCAPE.sub(_escape, json.dumps(body))


def _escape(match: re.Match[str]) -> str:
    high, low = match.groups()
    if high is None:
        return match[0]
    return f"\\U{0x10000 + ((int(high, 16) - 0xD800) << 10) + int(low, 16) - 0xDC00:08x}"
