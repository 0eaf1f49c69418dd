"""Apps and routes as `App` and `AppRoute`, with the permissions of gateway and controller."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from cornserve.app.record import AppStatus, Phase, Route, RouteStatus
from cornserve.app.settings import AppPolicies, ExecutorOverride
from cornserve.app.spec import AppModel, AppSource, AppSpec, Restart
from cornserve.control.store.base import APPS, ROUTES, RecordRejectedError, Store, StoreUnavailableError
from cornserve.control.store.kubernetes import KubernetesStore
from cornserve.control.store.kubernetes_records import record_codecs
from cornserve.kubernetes.client import KubeClient
from cornserve.kubernetes.errors import KubeForbiddenError
from cornserve.kubernetes.lease_election import LeaseElection
from cornserve.kubernetes.resources import APP_ROUTES, LEASES, SECRETS
from cornserve.task.spec import ExecutorSpec
from tests.kubernetes.api_server import ApiServer
from tests.kubernetes.helm import Manifests, render
from tests.waiting import until

MODEL = AppSpec(
    model=AppModel(id="HuggingFaceTB/SmolLM2-135M-Instruct"), replicas=2, policies=AppPolicies(routing="static")
)
SOURCE = AppSpec(
    source=AppSource(inline="text = 'ß 😀 \\u0000 \"'\n\ttab\r\n# \u2028\u0085\x7f end"), restart=Restart(id="again")
)
LARGE_NUMBER = ExecutorOverride(name="llm", options={"seed": 2**64})
SERVING = AppStatus(phase=Phase.SERVING, generation=1, serving_generation=1)


def route_of(uid: str, spec: AppSpec) -> Route:
    specs = {"llm-1": ExecutorSpec(executor="llm", config={"model": "m"}, gpus=1)}
    return Route(app_uid=uid, generation=1, spec=spec, shares=[1.0], specs=specs, groups={"llm-1": "llm-1-a"})


@pytest.fixture
async def store(kube_client: KubeClient) -> Store:
    return KubernetesStore(kube_client, record_codecs())


@pytest.mark.parametrize("spec", [MODEL, SOURCE], ids=["model", "source"])
async def test_an_app_and_its_route_are_read_as_they_were_written(store: Store, spec: AppSpec) -> None:
    app = await store.create(APPS, "a", spec)
    assert (app.spec, app.status, app.generation) == (spec, AppStatus(), 1)
    route = await store.create(ROUTES, "a", route_of(app.uid, spec))
    assert (route.spec, route.status) == (route_of(app.uid, spec), RouteStatus())

    app = await store.update_status(APPS, "a", SERVING, app.version)
    assert app.status == SERVING
    assert await store.update_status(APPS, "a", SERVING, app.version) == app
    scaled = await store.update_spec(APPS, "a", spec.model_copy(update={"replicas": 3}), app.version)
    assert (scaled.spec.replicas, scaled.status, scaled.generation) == (3, SERVING, 2)
    suspended = RouteStatus(suspended="it exits", suspended_code=spec.code)
    assert (await store.update_status(ROUTES, "a", suspended, route.version)).status == suspended
    assert (await store.list(APPS)).records == [scaled]


async def test_an_app_that_the_api_cannot_represent_is_rejected(store: Store) -> None:
    with pytest.raises(RecordRejectedError, match=r"'a' cannot be stored in Kubernetes: .*exactly"):
        await store.create(APPS, "a", AppSpec(model=AppModel(id="m"), executors=[LARGE_NUMBER]))


async def test_a_new_route_keeps_its_owner(store: Store, kube_client: KubeClient) -> None:
    app = await store.create(APPS, "a", MODEL)
    route = await store.create(ROUTES, "a", route_of(app.uid, MODEL))
    await store.update_spec(ROUTES, "a", route_of("new-uid", SOURCE), route.version)
    owners = (await kube_client.get(APP_ROUTES, "a"))["metadata"]["ownerReferences"]
    assert owners == [{"apiVersion": "cornserve.ai/v1alpha1", "kind": "App", "name": "a", "uid": "new-uid"}]


@pytest.mark.slow
async def test_the_route_of_a_deleted_app_is_deleted(control_plane: ApiServer, tmp_path: Path) -> None:
    file = tmp_path / "kubeconfig"
    control_plane.files.write_kubeconfig(file, control_plane.files.admin_token, control_plane.create_namespace())
    async with KubeClient.connect(kubeconfig=file, field_manager="cornserve") as client:
        store = KubernetesStore(client, record_codecs())
        app = await store.create(APPS, "a", MODEL)
        await store.create(ROUTES, "a", route_of(app.uid, MODEL))
        await store.delete(APPS, "a")

        async def has_no_route() -> bool:
            return not (await store.list(ROUTES)).records

        await until(has_no_route)


# Permissions

Connect = Callable[[str], Awaitable[KubeClient]]


@pytest.fixture
async def connect_as(
    api_server: ApiServer, kube_namespace: str, service_account_kubeconfig: Callable[[str], Path]
) -> AsyncIterator[Connect]:
    """Connects with the ServiceAccount and the Role of a component of the chart."""
    kinds = ("ServiceAccount", "Role", "RoleBinding")
    manifests = [each for each in Manifests(render(namespace=kube_namespace)) if each["kind"] in kinds]
    items = {"apiVersion": "v1", "kind": "List", "items": manifests}
    api_server.kubectl("apply", "--server-side", "-f", "-", stdin=json.dumps(items))
    async with AsyncExitStack() as stack:

        async def connect(component: str) -> KubeClient:
            kubeconfig = service_account_kubeconfig(f"cornserve-{component}")
            return await stack.enter_async_context(KubeClient.connect(kubeconfig=kubeconfig, field_manager="cornserve"))

        yield connect


async def test_gateway_and_controller_may_do_what_they_do_and_nothing_else(connect_as: Connect) -> None:
    gateway_client, controller_client = await connect_as("gateway"), await connect_as("controller")
    gateway = KubernetesStore(gateway_client, record_codecs())
    controller = KubernetesStore(controller_client, record_codecs())

    start = (await gateway.list(APPS)).version
    app = await gateway.create(APPS, "a", MODEL)
    app = await gateway.update_spec(APPS, "a", MODEL.model_copy(update={"replicas": 3}), app.version)
    app = await controller.update_spec(APPS, "a", MODEL.model_copy(update={"replicas": 4}), app.version)
    app = await controller.update_status(APPS, "a", SERVING, app.version)
    route = await controller.create(ROUTES, "a", route_of(app.uid, app.spec))
    route = await controller.update_spec(ROUTES, "a", route_of(app.uid, MODEL), route.version)
    route = await gateway.update_status(ROUTES, "a", RouteStatus(suspended="it exits"), route.version)
    for store in (gateway, controller):
        assert (await store.list(ROUTES)).records == [route]
        assert (await anext(store.watch(APPS, start))).record.name == "a"

    for forbidden in (
        gateway.update_status(APPS, "a", AppStatus(), app.version),
        gateway.create(ROUTES, "b", route_of(app.uid, MODEL)),
        gateway.update_spec(ROUTES, "a", route_of(app.uid, app.spec), route.version),
        gateway.delete(ROUTES, "a"),
        controller.create(APPS, "b", MODEL),
        controller.update_status(ROUTES, "a", RouteStatus(), route.version),
    ):
        with pytest.raises(RecordRejectedError, match="forbidden"):
            await forbidden
    for client in (gateway_client, controller_client):
        with pytest.raises(KubeForbiddenError):
            await client.list(SECRETS)
    await controller.delete(ROUTES, "a")
    await gateway.create(APPS, "temporary", MODEL)
    await controller.delete(APPS, "temporary")
    await gateway.delete(APPS, "a")


async def test_only_the_controller_takes_part_in_the_election(connect_as: Connect) -> None:
    led = False

    async def lead() -> None:
        nonlocal led
        led = True

    client = await connect_as("controller")
    await LeaseElection(client, "cornserve-controller", "a").run(lead)
    await LeaseElection(client, "cornserve-controller", "b").run(lead)
    assert led
    with pytest.raises(KubeForbiddenError):
        await (await connect_as("gateway")).get(LEASES, "cornserve-controller")


async def test_a_process_without_permissions_names_what_it_lacks(
    kube_namespace: str, service_account_kubeconfig: Callable[[str], Path]
) -> None:
    kubeconfig = service_account_kubeconfig("default")
    async with KubeClient.connect(kubeconfig=kubeconfig, field_manager="cornserve") as client:
        with pytest.raises(StoreUnavailableError, match=r'cannot list resource "apps" in API group "cornserve.ai"'):
            await KubernetesStore(client, record_codecs()).list(APPS)
