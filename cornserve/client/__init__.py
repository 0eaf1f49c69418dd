"""Clients of Cornserve's gateway.

    with Client() as client:
        client.deploy("/models/smollm2", on_progress=print)
        print("".join(client.chat("smollm2", [{"role": "user", "content": "Hello!"}])))

`client` and `async_client` do the I/O and nothing else: what is asked (`calls`), how answers are read (`answers`,
`events`), when to ask again (`watch`, `retries`) and what can go wrong (`errors`) is told once, for both.
"""

from cornserve.app.record import ReplicaLog
from cornserve.client.address import DEFAULT_URL
from cornserve.client.answers import Item, Result
from cornserve.client.async_client import AsyncClient
from cornserve.client.client import Client
from cornserve.client.errors import (
    ApiError,
    ArgumentError,
    ClientError,
    ClosedError,
    DeletedError,
    DeploymentError,
    DisconnectedError,
    LoopError,
    NotInTimeError,
    SilentError,
    StrangerError,
    TargetError,
    UnreachableError,
)
from cornserve.client.images import image_part

__all__ = [
    "DEFAULT_URL",
    "ApiError",
    "ArgumentError",
    "AsyncClient",
    "Client",
    "ClientError",
    "ClosedError",
    "DeletedError",
    "DeploymentError",
    "DisconnectedError",
    "Item",
    "LoopError",
    "NotInTimeError",
    "ReplicaLog",
    "Result",
    "SilentError",
    "StrangerError",
    "TargetError",
    "UnreachableError",
    "image_part",
]
