"""Finds the API server and the credentials: a pod's service account, or a kubeconfig."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cornserve.kubernetes.errors import KubeConfigError

if TYPE_CHECKING:
    from kubernetes.aio.client import Configuration

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
DEFAULT_NAMESPACE = "default"


@dataclass(frozen=True, slots=True)
class ClusterAccess:
    configuration: Configuration
    """The address and the credentials. It reads a rotated service account token itself."""
    namespace: str
    """The namespace of the context or of the pod."""


async def load_access(context: str | None = None, kubeconfig: Path | None = None) -> ClusterAccess:
    """Reads the service account in a pod, and otherwise the kubeconfig, with the rules of kubectl.

    Args:
        context: the context of the kubeconfig; by default its current context.
        kubeconfig: by default `$KUBECONFIG`, which may name several files, or `~/.kube/config`.

    Raises:
        KubeConfigError: there is neither, or the file is invalid.
    """
    if context is None and kubeconfig is None and "KUBECONFIG" not in os.environ and _is_pod():
        return _load_service_account()
    return await _load_kubeconfig(context, str(kubeconfig or os.environ.get("KUBECONFIG") or _default_kubeconfig()))


def _is_pod() -> bool:
    return "KUBERNETES_SERVICE_HOST" in os.environ and (SERVICE_ACCOUNT / "token").is_file()


def _default_kubeconfig() -> Path:
    return Path.home() / ".kube" / "config"


def _any_exists(files: str) -> bool:
    return any(Path(file).expanduser().exists() for file in files.split(os.pathsep) if file)


def _load_service_account() -> ClusterAccess:
    # Imported here, because it takes 0.2 s.
    from kubernetes.aio.client import Configuration
    from kubernetes.aio.config import ConfigException, load_incluster_config

    configuration = Configuration()
    try:
        load_incluster_config(client_configuration=configuration)
        namespace = (SERVICE_ACCOUNT / "namespace").read_text().strip()
    except (ConfigException, OSError) as error:
        raise KubeConfigError(f"cannot use the pod's service account: {error}") from error
    return ClusterAccess(configuration, namespace)


async def _load_kubeconfig(context: str | None, files: str) -> ClusterAccess:
    from kubernetes.aio.client import Configuration
    from kubernetes.aio.config import ConfigException, load_kube_config
    from yaml import YAMLError

    if not _any_exists(files):
        raise KubeConfigError(
            f"no Kubernetes cluster is configured: {files} does not exist: set KUBECONFIG to a kubeconfig file"
        )
    configuration = Configuration()
    try:
        loader = await load_kube_config(config_file=files, context=context, client_configuration=configuration)
        namespace = loader.current_context["context"].get("namespace")
    except ConfigException as error:
        raise KubeConfigError(f"cannot use the kubeconfig {files}: {error}") from error
    # The library does not check the structure of the file.
    except (AttributeError, KeyError, OSError, TypeError, ValueError, YAMLError) as error:
        raise KubeConfigError(f"the kubeconfig {files} is not valid: {type(error).__name__}: {error}") from error
    return ClusterAccess(configuration, namespace or DEFAULT_NAMESPACE)
