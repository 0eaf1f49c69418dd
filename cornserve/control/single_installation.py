"""A namespace holds one installation: the controllers of a second one would change the same apps."""

from __future__ import annotations

from typing import Final

from cornserve.kubernetes.client import KubeClient
from cornserve.kubernetes.resources import DEPLOYMENTS, JsonObject
from cornserve.kubernetes_resources.labels import COMPONENT_LABEL, INSTANCE_LABEL, NAME_LABEL

_CONTROLLERS: Final = f"{NAME_LABEL}=cornserve,{COMPONENT_LABEL}=controller,{INSTANCE_LABEL}"


class SecondInstallationError(Exception):
    """The namespace has an older installation. The message is for users."""


async def check_single_installation(client: KubeClient, instance: str, deployment: str | None) -> None:
    """Raises `SecondInstallationError` if another installation of the namespace is older than this one.

    Helm refuses a second release itself. Argo CD and `kubectl apply` do not.

    Args:
        instance: the label `app.kubernetes.io/instance` of this installation.
        deployment: the name of its Deployment of controllers, whose label Argo CD may replace.
    """
    deployments = (await client.list(DEPLOYMENTS, label_selector=_CONTROLLERS)).items
    first = min(deployments, key=_age, default=None)
    if first is None or first["metadata"]["name"] == deployment:
        return
    if (found := first["metadata"]["labels"][INSTANCE_LABEL]) != instance:
        raise SecondInstallationError(
            f"the namespace {client.namespace} already contains the installation {found} of Cornserve: uninstall "
            f"{instance}, or install it in another namespace"
        )


def _age(deployment: JsonObject) -> tuple[str, str]:
    """Returns what orders Deployments, the oldest first."""
    metadata = deployment["metadata"]
    return metadata["creationTimestamp"], metadata["name"]
