"""Clients of Cornserve's gateway.

    with Client() as client:
        client.deploy("/models/smollm2", on_progress=print)
        print("".join(client.chat("smollm2", [{"role": "user", "content": "Hello!"}])))

`client` and `async_client` contain the I/O only. They share the other modules: requests (`calls`), responses
(`responses`, `sse`), retries (`retries`, `app_watch`) and errors (`errors`).
"""

from cornserve.app.record import EngineTokens, ReplicaLog, ReplicaMemory
from cornserve.client.async_client import AsyncClient
from cornserve.client.client import Client
from cornserve.client.errors import (
    ApiStatusError,
    AppDeletedError,
    ArgumentError,
    ClientClosedError,
    ClientError,
    ClusterError,
    ClusterUnreachableError,
    DeploymentError,
    DeployTargetError,
    DisconnectedError,
    EventLoopError,
    ResponseTimeoutError,
    UnexpectedResponseError,
    UnreachableError,
    WaitTimeoutError,
)
from cornserve.client.media import audio_part, image_part, video_part
from cornserve.client.responses import ChatDelta, StreamItem, StreamResult

__all__ = [
    "ApiStatusError",
    "AppDeletedError",
    "ArgumentError",
    "AsyncClient",
    "ChatDelta",
    "Client",
    "ClientClosedError",
    "ClientError",
    "ClusterError",
    "ClusterUnreachableError",
    "DeployTargetError",
    "DeploymentError",
    "DisconnectedError",
    "EngineTokens",
    "EventLoopError",
    "ReplicaLog",
    "ReplicaMemory",
    "ResponseTimeoutError",
    "StreamItem",
    "StreamResult",
    "UnexpectedResponseError",
    "UnreachableError",
    "WaitTimeoutError",
    "audio_part",
    "image_part",
    "video_part",
]
