"""Converts errors of the Kubernetes API to errors of the client."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from cornserve.client.errors import ClusterError, ClusterUnreachableError
from cornserve.kubernetes.errors import (
    KubeApiError,
    KubeConfigError,
    KubeForbiddenError,
    KubeUnauthorizedError,
    KubeUnavailableError,
)


@contextmanager
def explained_errors(context: str | None) -> Iterator[None]:
    """Converts errors of the Kubernetes API to `ClusterError`.

    Args:
        context: the selected context of the kubeconfig, or None for the current one.
    """
    try:
        yield
    except (KubeConfigError, KubeApiError) as error:
        raise explain(error, context) from error


def explain(error: KubeConfigError | KubeApiError, context: str | None) -> ClusterError:
    """Returns an error whose message suggests what to do."""
    selected = f"the context {context!r}" if context else "the current context"
    match error:
        case KubeConfigError():
            return ClusterError(f"{error}{_known_contexts(context)}")
        case KubeUnauthorizedError():
            return ClusterError(
                f"the API server refuses the credentials of {selected}, which may have expired: log in again"
            )
        case KubeForbiddenError():
            return ClusterError(
                f"the user of {selected} lacks a permission: {error.message}: ask an administrator for it "
                "(`cornserve doctor` lists what is missing), or give the gateway's address with --url"
            )
        case KubeUnavailableError():
            return ClusterUnreachableError(f"{error.message}: check the context and your network, and retry")
    return ClusterError(f"the API server of {selected} refused a request: {error.message}")


def _known_contexts(context: str | None) -> str:
    from cornserve.kubernetes.contexts import context_names

    names = context_names()
    return f": give one of its contexts: {', '.join(names)}" if context is not None and context not in names else ""
