"""Store and informer when a real API server ends and starts again, and when etcd drops its history."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from typing import Self

import httpx2
import pytest

from cornserve.control.store.base import APPS, ConflictError, ExpiredError, StoreUnavailableError
from cornserve.control.store.kubernetes import KubernetesStore
from cornserve.control.store.list_watch import list_and_watch
from cornserve.kubernetes.client import KubeClient
from cornserve.kubernetes.errors import KubeGoneError
from cornserve.kubernetes.informer import Informer
from scripts.cluster.control_plane import ControlPlaneFiles
from tests.kubernetes.api_server import ApiServer, require_programs, running
from tests.kubernetes.record_resources import APP_RECORDS, PLAIN_CODECS, install_record_crds
from tests.unit.store.conformance import ONE, TWO, open_watch
from tests.waiting import until, wait_until


class RestartableApiServer:
    """An API server whose process ends and starts again, on the same etcd and port."""

    def __init__(self, files: ControlPlaneFiles) -> None:
        self.files = files
        self.server = ApiServer(files)
        self._process = ExitStack()

    def __enter__(self) -> Self:
        self._spawn()
        wait_until(self.server.is_ready)
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self.server.close()

    async def start(self) -> None:
        self._spawn()
        await until(self.server.is_ready)

    def _spawn(self) -> None:
        """Starts the process. It ends with the calling thread."""
        self._process.enter_context(running(self.files.api_server(), self.files.directory))

    def stop(self) -> None:
        self._process.close()

    def compact(self, version: int) -> None:
        """Drops the history before this version."""
        transport = httpx2.HTTPTransport(uds=str(self.files.directory / "localhost:2379"))
        with httpx2.Client(transport=transport, base_url="http://localhost") as etcd:
            etcd.post("/v3/kv/compaction", json={"revision": version, "physical": True}).raise_for_status()


@pytest.fixture(scope="module")
def restartable(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RestartableApiServer]:
    require_programs()
    directory = tmp_path_factory.mktemp("restart")
    with socket.socket() as reserved:
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        reserved.bind(("127.0.0.1", 0))
        files = ControlPlaneFiles(directory, "127.0.0.1", reserved.getsockname()[1])
        files.write()
        with running(files.etcd(), directory), RestartableApiServer(files) as api_server:
            install_record_crds(api_server.server)
            yield api_server


@pytest.fixture
async def client(restartable: RestartableApiServer) -> AsyncIterator[KubeClient]:
    namespace = restartable.server.create_namespace()
    connecting = KubeClient.connect(
        kubeconfig=restartable.files.kubeconfig, namespace=namespace, field_manager="cornserve"
    )
    async with connecting as client:
        yield client


@pytest.mark.slow
async def test_store_and_informer_survive_an_api_server_that_restarts(
    restartable: RestartableApiServer, client: KubeClient
) -> None:
    store = KubernetesStore(client, PLAIN_CODECS)
    informer = Informer(client, APP_RECORDS)
    following = asyncio.create_task(informer.run())
    first = await store.create(APPS, "a", ONE)
    await until(lambda: "a" in informer.objects)
    listing = await store.list(APPS)
    second = await store.update_spec(APPS, "a", TWO, first.version)

    restartable.stop()
    await until(lambda: informer.error != "")
    assert list(informer.objects) == ["a"]
    with pytest.raises(StoreUnavailableError):
        await store.get(APPS, "a")
    with pytest.raises(StoreUnavailableError):
        await anext(store.watch(APPS, second.version))

    await restartable.start()
    await until(lambda: informer.error == "")
    assert await store.get(APPS, "a") == second
    # The new process does not know the changes of the old one.
    async with open_watch(store, listing.version) as watch:
        with pytest.raises(ExpiredError, match="list the records again"):
            await anext(watch)
    created = await store.create(APPS, "b", ONE)
    await until(lambda: sorted(informer.objects) == ["a", "b"])
    assert (await anext(list_and_watch(store, APPS))).records == [second, created]  # type: ignore[union-attr]
    following.cancel()


@pytest.mark.slow
async def test_a_spec_based_on_a_version_that_etcd_has_dropped_is_a_conflict(
    restartable: RestartableApiServer, client: KubeClient
) -> None:
    store = KubernetesStore(client, PLAIN_CODECS)
    old = await store.create(APPS, "a", ONE)
    new = await store.update_status(APPS, "a", old.status.model_copy(update={"message": "hello"}), old.version)
    newest = await store.create(APPS, "b", ONE)
    restartable.compact(newest.version)
    restartable.stop()  # Its cache has old versions, too.
    await restartable.start()

    with pytest.raises(KubeGoneError):
        await client.list(APP_RECORDS, resource_version=str(old.version), exact=True)
    with pytest.raises(ConflictError, match="read it again"):
        await store.update_spec(APPS, "a", TWO, old.version)
    assert (await store.update_spec(APPS, "a", TWO, new.version)).spec == TWO
