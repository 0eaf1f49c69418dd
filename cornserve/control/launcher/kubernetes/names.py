"""Names, labels, ports and paths of the objects that the launcher creates."""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import Final

from cornserve.control.launcher.base import GroupKey, GroupRefusedError
from cornserve.kubernetes_resources.labels import COMPONENT_LABEL, EXECUTOR_LABEL, INSTANCE_LABEL

FIELD_MANAGER: Final = "cornserve-controller"

COMPONENT: Final = "executor"
CELL_LABEL: Final = "cornserve.ai/cell"

HASH_ANNOTATION: Final = "cornserve.ai/applied-hash"
"""A hash of the objects of a group without the number of replicas. The Deployment has it once all are applied."""
RETIRED_ANNOTATION: Final = "cornserve.ai/retired"
"""`true`: the group is deleted as soon as its pods have ended."""
AVOIDED_NODES_ANNOTATION: Final = "cornserve.ai/avoided-nodes"
"""The nodes, separated by commas, where a cell could not be placed."""

CONTAINER: Final = "executor"
DOWNLOAD_CONTAINER: Final = "download"
OWN_CONTAINERS: Final = frozenset({CONTAINER, DOWNLOAD_CONTAINER})
INVOCATION_PORT: Final = 9000
INVOCATION_PORT_NAME: Final = "invocations"
HEALTH_PORT: Final = 9001
METRICS_PORT: Final = 9002
UCX_PORTS: Final = range(10_000, 14_096)
"""The ports at which executors accept UCX over TCP: one for each connection and network interface."""

SECRET_DIR: Final = PurePosixPath("/run/secrets/cornserve")
TLS_DIR: Final = PurePosixPath("/run/secrets/cornserve-tls")
PRIVATE_SHARED_MEMORY: Final = PurePosixPath("/dev/shm")
SHARED_MEMORY: Final = PurePosixPath("/dev/shm/cornserve")
HOME_DIR: Final = PurePosixPath("/var/cache/cornserve")
MODEL_DIR: Final = PurePosixPath("/var/lib/cornserve/model")
HUB_CACHE: Final = PurePosixPath("/var/cache/huggingface")

USER: Final = 10001
"""The user and the group of all processes. Pods share memory only if they are equal."""

MAX_KEY_CHARACTERS: Final = 63
_KEY = re.compile(r"[a-z]([a-z0-9-]*[a-z0-9])?")


def object_name(key: GroupKey) -> str:
    """Returns the name of the objects of a group. Raises `GroupRefusedError` if Kubernetes would refuse it."""
    if not _KEY.fullmatch(key) or len(key) > MAX_KEY_CHARACTERS:
        raise GroupRefusedError(
            f"the executor of {key!r} cannot run on Kubernetes: its name is part of object names, so it must consist "
            "of lower case letters, digits and hyphens, begin with a letter and have at most 50 characters"
        )
    return key


def selector(instance: str) -> str:
    """Returns the label selector for all objects of executors of an installation, except PodGroups.

    Objects without the label of a group belong to none, for example a pod whose label someone has removed.
    """
    return f"{pod_group_selector(instance)},{EXECUTOR_LABEL}"


def pod_group_selector(instance: str) -> str:
    """Returns the label selector for all PodGroups of an installation. Several executor groups share one."""
    return f"{INSTANCE_LABEL}={instance},{COMPONENT_LABEL}={COMPONENT}"
