"""Requests to the Kubernetes API with plain objects."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Self

from cornserve.kubernetes.apply_patch import APPLY, to_yaml
from cornserve.kubernetes.configuration import load_access
from cornserve.kubernetes.errors import parse_object
from cornserve.kubernetes.pages import ObjectList, Parameters, read_pages
from cornserve.kubernetes.port_forward import PodPortConnection, open_pod_port
from cornserve.kubernetes.resources import PODS, JsonObject, ResourceType, group_path
from cornserve.kubernetes.transport import KubeTransport, watch_timeout
from cornserve.kubernetes.watch_events import SILENT_SECONDS, WATCH_SECONDS, WatchEvent, read_events

MAX_LOG_BYTES = 1024 * 1024

MAX_OUTPUT_BYTES = 32 * 1024 * 1024
"""More than kubelets keep of a log by default: 10 MiB. A second of output must fit."""


class KubeClient:
    """Sends requests about the objects of one namespace, and about objects without namespace.

    Every method raises `KubeApiError`, and `KubeUnavailableError` within seconds while the API server is away.
    """

    def __init__(self, transport: KubeTransport, namespace: str, field_manager: str) -> None:
        self._transport = transport
        self.namespace = namespace
        self.field_manager = field_manager
        """The name under which the API server records which fields this client has written."""

    @classmethod
    @asynccontextmanager
    async def connect(
        cls,
        *,
        context: str | None = None,
        namespace: str | None = None,
        field_manager: str,
        kubeconfig: Path | None = None,
    ) -> AsyncIterator[Self]:
        """Uses the pod's service account or a kubeconfig. Does not send a request.

        Args:
            namespace: by default the namespace of the context or the pod.

        Raises:
            KubeConfigError: the address or the credentials cannot be read.
        """
        load = partial(load_access, context, kubeconfig)
        access = await load()
        transport = KubeTransport(access, load)
        try:
            yield cls(transport, namespace or access.namespace, field_manager)
        finally:
            await transport.close()

    def with_field_manager(self, field_manager: str) -> Self:
        """Returns a client with the same connections and another field manager."""
        return type(self)(self._transport, self.namespace, field_manager)

    @property
    def host(self) -> str:
        """The URL of the API server."""
        return self._transport.host

    async def get(self, type: ResourceType, name: str) -> JsonObject:
        """Raises `KubeNotFoundError`."""
        return await self._request("GET", type.path(self.namespace, name))

    async def list(
        self,
        type: ResourceType,
        *,
        label_selector: str | None = None,
        field_selector: str | None = None,
        resource_version: str | None = None,
        exact: bool = False,
    ) -> ObjectList:
        """Returns all objects, which are read in pages.

        Args:
            resource_version: by default, the newest objects. "0": objects from the API server's cache, which may be
                older. Another version: objects that are not older, or, with `exact`, as they were at this version.

        Raises:
            KubeGoneError: the API server does not keep the objects at this version any more.
        """
        parameters = {
            "labelSelector": label_selector,
            "fieldSelector": field_selector,
            "resourceVersion": resource_version,
            "resourceVersionMatch": "Exact" if exact else None,
        }
        read_page = partial(self._request, "GET", type.path(self.namespace))
        return await read_pages(read_page, type, parameters, restart=not exact)

    async def create(self, type: ResourceType, body: JsonObject, *, dry_run: bool = False) -> JsonObject:
        """Raises `KubeAlreadyExistsError`, `KubeInvalidError`."""
        return await self._request("POST", type.path(self.namespace), self._write_parameters(dry_run), body)

    async def replace(self, type: ResourceType, body: JsonObject, subresource: str | None = None) -> JsonObject:
        """Replaces the object, or one subresource of it.

        Raises `KubeConflictError` if `metadata.resourceVersion` is set and old, `KubeNotFoundError`,
        `KubeInvalidError`.
        """
        path = type.path(self.namespace, body["metadata"]["name"], subresource)
        return await self._request("PUT", path, self._write_parameters(), body)

    async def apply(
        self,
        type: ResourceType,
        body: JsonObject,
        *,
        force: bool = False,
        dry_run: bool = False,
        subresource: str | None = None,
    ) -> JsonObject:
        """Creates or updates the object by server-side apply.

        The object gets the fields of `body`, and loses the fields that this manager has applied earlier and that are
        missing in `body`.

        Raises:
            KubeConflictError: other managers own fields with other values, and `force` is not set; or
                `metadata.resourceVersion` or `metadata.uid` is set and not that of the object.
            KubeInvalidError: the object is invalid or has unknown fields.
        """
        path = type.path(self.namespace, body["metadata"]["name"], subresource)
        parameters = self._write_parameters(dry_run) | {"force": "true" if force else None}
        return await self._request("PATCH", path, parameters, to_yaml(body), APPLY)

    async def merge_patch(
        self, type: ResourceType, name: str, patch: JsonObject, subresource: str | None = None
    ) -> JsonObject:
        """Sets the fields of `patch`, and removes fields whose value is null. Raises `KubeNotFoundError`."""
        path = type.path(self.namespace, name, subresource)
        return await self._request("PATCH", path, self._write_parameters(), patch, "application/merge-patch+json")

    async def delete(
        self, type: ResourceType, name: str, *, uid: str | None = None, propagation: str | None = None
    ) -> None:
        """Deletes the object.

        Args:
            uid: deletes only the object with this uid.
            propagation: deletes what it owns later (`Background`), first (`Foreground`) or never (`Orphan`).

        Raises:
            KubeNotFoundError: it does not exist.
            KubeConflictError: it has another uid.
        """
        options: JsonObject = {"apiVersion": "v1", "kind": "DeleteOptions"}
        if uid is not None:
            options["preconditions"] = {"uid": uid}
        if propagation is not None:
            options["propagationPolicy"] = propagation
        await self._request("DELETE", type.path(self.namespace, name), body=options)

    @asynccontextmanager
    async def watch(
        self,
        type: ResourceType,
        resource_version: str,
        *,
        label_selector: str | None = None,
        field_selector: str | None = None,
        seconds: float = WATCH_SECONDS,
    ) -> AsyncIterator[AsyncIterator[WatchEvent]]:
        """Starts a watch, and yields the changes after `resource_version`, and bookmarks, in order.

        The block starts when the API server has accepted the watch. The events end normally after `seconds`: watch
        again from the version of the last one, which may be a bookmark.

        Raises:
            KubeGoneError: the API server does not keep the changes after this version any more: list again.
            KubeUnavailableError: the connection has failed, or nothing has arrived for `SILENT_SECONDS`.
        """
        parameters = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": resource_version,
            "timeoutSeconds": str(max(1, round(seconds))),
            "labelSelector": label_selector,
            "fieldSelector": field_selector,
        }
        timeout = watch_timeout(SILENT_SECONDS)
        path = type.path(self.namespace)
        async with self._transport.open("GET", path, parameters=_given(parameters), timeout=timeout) as response:
            yield read_events(response, self._transport)

    async def pod_log(
        self, name: str, *, tail_lines: int, previous: bool = False, container: str | None = None
    ) -> Sequence[str]:
        """Returns the last lines of a container.

        Args:
            previous: reads the log of the container's last instance, which has ended.

        Raises:
            KubeNotFoundError: the pod does not exist.
            KubeInvalidError: the container has not started, or its previous instance does not exist.
        """
        parameters = {
            "tailLines": str(tail_lines),
            "limitBytes": str(MAX_LOG_BYTES),
            "previous": "true" if previous else None,
            "container": container,
        }
        return (await self._read_log(name, parameters)).splitlines()

    async def pod_output(self, name: str, *, since: str | None) -> Sequence[str]:
        """Returns the complete lines of a pod with one container, each after its time and a space.

        Args:
            since: the time of an earlier line. Lines of this second and later ones are returned.

        Raises:
            KubeNotFoundError: the pod does not exist.
            KubeInvalidError: the container has not started.
        """
        parameters = {"timestamps": "true", "limitBytes": str(MAX_OUTPUT_BYTES), "sinceTime": since}
        return (await self._read_log(name, parameters)).split("\n")[:-1]

    async def _read_log(self, pod: str, parameters: Parameters) -> str:
        path = PODS.path(self.namespace, pod, "log")
        async with self._transport.open("GET", path, parameters=_given(parameters)) as response:
            with self._transport.connection_errors():
                return (await response.read()).decode(errors="replace")

    def connect_pod_port(self, name: str, port: int) -> AbstractAsyncContextManager[PodPortConnection]:
        """Connects to a port of a pod until the end of the block. Raises `KubeApiError`."""
        return open_pod_port(self._transport, PODS.path(self.namespace, name, "portforward"), port)

    async def openapi(self, group_version: str) -> JsonObject:
        """Returns the OpenAPI document of an API group, which every authenticated user may read.

        Raises `KubeUnknownTypeError` if the API server does not have the group.
        """
        return await self._request("GET", f"/openapi/v3{group_path(group_version)}")

    async def server_version(self) -> str:
        """Returns the version of Kubernetes, such as `v1.36.3`."""
        return str((await self._request("GET", "/version"))["gitVersion"])

    def _write_parameters(self, dry_run: bool = False) -> Parameters:
        return {
            "fieldManager": self.field_manager,
            # By default, the API server removes unknown fields silently.
            "fieldValidation": "Strict",
            "dryRun": "All" if dry_run else None,
        }

    async def _request(
        self,
        method: str,
        path: str,
        parameters: Parameters | None = None,
        body: Any = None,
        content_type: str = "application/json",
    ) -> JsonObject:
        async with self._transport.open(
            method, path, parameters=_given(parameters or {}), body=body, content_type=content_type
        ) as response:
            with self._transport.connection_errors():
                return parse_object(self.host, await response.read())


def _given(parameters: Parameters) -> dict[str, str]:
    return {name: value for name, value in parameters.items() if value is not None}
