"""Events of apps, for users."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import BaseModel, ConfigDict


class AppEvent(BaseModel):
    """An event of an app, one of its replicas, or another object that belongs to it."""

    model_config = ConfigDict(frozen=True)

    time: datetime | None = None
    """The last time that it happened. None: it describes the current state."""
    type: Literal["Normal", "Warning"]
    reason: str
    object: str
    """The kind and the name of the object, such as `Pod/llm-3f0c-x`."""
    message: str
    count: int = 1
    """The number of times that it has happened."""
