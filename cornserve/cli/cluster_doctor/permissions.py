"""The permissions that the command line needs in a namespace."""

from __future__ import annotations

from typing import NamedTuple


class Permission(NamedTuple):
    verb: str
    resource: str
    subresource: str = ""
    group: str = ""
    is_essential: bool = True
    """Whether commands cannot reach the gateway without it."""

    def __str__(self) -> str:
        path = f"{self.resource}/{self.subresource}" if self.subresource else self.resource
        return f"{self.verb} {path}"


NEEDED = (
    Permission("list", "services"),
    Permission("list", "pods"),
    Permission("get", "pods", "portforward"),
    Permission("create", "pods", "portforward"),
)
"""To find a gateway and to connect to it. Access to the Secret with the admin token can be limited to its name."""
