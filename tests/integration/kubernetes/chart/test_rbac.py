"""The ServiceAccounts have the permissions that their processes need, and no others."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.kubernetes.api_server import ApiServer
from tests.kubernetes.helm import HelmRelease, Manifests, render
from tests.waiting import until

Permission = tuple[str, str]
"""A resource, as in kubectl, with the name of an object if the permission is limited to it, and a verb."""

READ = ("get", "list", "watch")
APPLY = ("create", "patch", "delete")
"""Server-side apply creates or patches."""
RESTORE = ("list", "watch", "create", "update", "patch", "delete")
"""An update restores an object that someone has changed."""


def permissions(table: dict[str, Iterable[str]]) -> set[Permission]:
    return {(resource, verb) for resource, verbs in table.items() for verb in verbs}


GRANTED = {
    "gateway": permissions(
        {
            "apps.cornserve.ai": READ + APPLY,
            "approutes.cornserve.ai": READ,
            "approutes/status.cornserve.ai": ["update"],
            "endpointslices.discovery.k8s.io": ["list", "watch"],
            "pods": READ,
            "pods/log": ["get"],
            "events": READ,
        }
    ),
    "controller": permissions(
        {
            "apps.cornserve.ai": (*READ, "patch", "delete"),
            "apps/status.cornserve.ai": ["update"],
            "approutes.cornserve.ai": READ + APPLY,
            "deployments.apps": READ + APPLY,
            "services": RESTORE,
            "poddisruptionbudgets.policy": RESTORE,
            "endpointslices.discovery.k8s.io": ["list", "watch"],
            "pods": READ,
            "pods/log": ["get"],
            "events": (*READ, "create", "patch"),
            "configmaps": (*READ, "create"),
            "configmaps/cornserve-profiles": ["patch"],
            "jobs.batch": ["create", "delete"],
            "leases.coordination.k8s.io": ["create"],
            "leases.coordination.k8s.io/cornserve-controller": (*READ, "update"),
        }
    ),
    "executor": set(),
    "secrets": permissions({"secrets/cornserve-access/cornserve-instance": ["get", "patch"]}),
}


class Account:
    """Sends requests as a ServiceAccount."""

    def __init__(self, server: ApiServer, namespace: str, name: str) -> None:
        self._namespace = namespace
        self._client = httpx2.Client(
            base_url=server.url,
            verify=ssl.create_default_context(cafile=str(server.files.ca_file)),
            headers={"Authorization": f"Bearer {server.service_account_token(namespace, name)}"},
            trust_env=False,
        )

    def get(self, path: str) -> int:
        """Returns the HTTP status."""
        return self._client.get(path).status_code

    def permissions(self) -> set[Permission]:
        """Returns what the API server permits in the namespace."""
        path = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews"
        review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview"}
        response = self._client.post(path, json={**review, "spec": {"namespace": self._namespace}})
        return {
            ("/".join([f"{resource}.{group}" if group else resource, *names]), verb)
            for rule in response.raise_for_status().json()["status"]["resourceRules"]
            for group in rule["apiGroups"]
            for resource in rule["resources"]
            for verb in rule["verbs"]
            for names in [rule.get("resourceNames", [])]
        }

    def close(self) -> None:
        self._client.close()


@pytest.fixture(scope="module")
def release_namespace(api_server: ApiServer, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A namespace with a release of the chart."""
    namespace = api_server.create_namespace(**{"pod-security.kubernetes.io/enforce": "restricted"})
    kubeconfig: Path = tmp_path_factory.mktemp("release") / "kubeconfig"
    api_server.files.write_kubeconfig(kubeconfig, api_server.files.admin_token, namespace)
    HelmRelease("cornserve", kubeconfig, namespace).install()
    return namespace


@pytest.fixture
def account(api_server: ApiServer, release_namespace: str, request: pytest.FixtureRequest) -> Callable[[str], Account]:
    def open_account(name: str) -> Account:
        opened = Account(api_server, release_namespace, name)
        request.addfinalizer(opened.close)
        return opened

    return open_account


@pytest.mark.parametrize("component", GRANTED.keys())
async def test_a_component_has_its_permissions_and_no_others(account: Callable[[str], Account], component: str) -> None:
    own, everyone = account(f"cornserve-{component}"), account("default").permissions()

    with suppress(TimeoutError):  # The API server uses a new RoleBinding a little later.
        await until(lambda: own.permissions() - everyone == GRANTED[component], seconds=20)

    assert own.permissions() - everyone == GRANTED[component]


@pytest.mark.parametrize("component", ["gateway", "controller", "executor"])
async def test_a_component_reads_no_secrets_and_no_other_namespace(
    account: Callable[[str], Account], release_namespace: str, component: str
) -> None:
    own = account(f"cornserve-{component}")
    pods = f"/api/v1/namespaces/{release_namespace}/pods"
    await until(lambda: own.get(pods) == (403 if component == "executor" else 200))

    for path in (
        f"/api/v1/namespaces/{release_namespace}/secrets/cornserve-instance",
        "/api/v1/namespaces/default/pods",
        "/api/v1/pods",
        "/api/v1/nodes",
    ):
        assert own.get(path) == 403


def test_the_controller_changes_the_lease_of_its_release_only() -> None:
    rules = Manifests(render(release="serving")).get("Role", "serving-cornserve-controller")["rules"]

    names = [rule.get("resourceNames") for rule in rules if rule["resources"] == ["leases"]]
    assert names == [None, ["serving-controller"]]


@pytest.mark.parametrize(("placement", "verbs"), [("Affinity", []), ("PodGroup", [[*RESTORE]])])
def test_the_controller_writes_pod_groups_if_cells_need_them(placement: str, verbs: list[list[str]]) -> None:
    manifests = Manifests(render("--set", f"executors.cellPlacement={placement}"))
    rules = manifests.get("Role", "cornserve-controller")["rules"]

    assert [rule["verbs"] for rule in rules if rule["resources"] == ["podgroups"]] == verbs


def test_every_permission_is_in_the_namespace() -> None:
    manifests = Manifests(render("--set", "monitoring.podMonitor.enabled=true,gateway.autoscaling.enabled=true"))

    assert not {"ClusterRole", "ClusterRoleBinding"} & {item["kind"] for item in manifests}


def test_executors_and_the_test_pod_get_no_token() -> None:
    manifests = Manifests(render())

    assert manifests.get("ServiceAccount", "cornserve-executor")["automountServiceAccountToken"] is False
    assert manifests.get("Pod", "cornserve-test")["spec"]["automountServiceAccountToken"] is False


async def test_the_role_of_the_cli_reads_one_secret(
    api_server: ApiServer, release_namespace: str, account: Callable[[str], Account]
) -> None:
    core, rbac = "/api/v1", "/apis/rbac.authorization.k8s.io/v1"
    api_server.request("POST", f"{core}/namespaces/{release_namespace}/serviceaccounts", {"metadata": {"name": "user"}})
    user = account("user")
    binding: dict[str, Any] = {
        "metadata": {"name": "user"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "cornserve-cli"},
        "subjects": [{"kind": "ServiceAccount", "name": "user", "namespace": release_namespace}],
    }
    secrets = f"{core}/namespaces/{release_namespace}/secrets"
    assert user.get(f"{secrets}/cornserve-access") == 403

    api_server.request("POST", f"{rbac}/namespaces/{release_namespace}/rolebindings", binding)

    await until(lambda: user.get(f"{secrets}/cornserve-access") == 200)
    assert user.get(f"{core}/namespaces/{release_namespace}/services") == 200
    for path in ("api/v1/{}/configmaps", "api/v1/{}/persistentvolumeclaims", "apis/coordination.k8s.io/v1/{}/leases"):
        assert user.get(f"/{path.format(f'namespaces/{release_namespace}')}") == 200
    assert user.get(f"{secrets}/cornserve-instance") == 403
    assert user.get(secrets) == 403
