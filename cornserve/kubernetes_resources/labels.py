"""Labels and annotations of the objects of an installation."""

from typing import Final

NAME_LABEL: Final = "app.kubernetes.io/name"
PART_OF_LABEL: Final = "app.kubernetes.io/part-of"
INSTANCE_LABEL: Final = "app.kubernetes.io/instance"
COMPONENT_LABEL: Final = "app.kubernetes.io/component"
VERSION_LABEL: Final = "app.kubernetes.io/version"
MANAGED_BY_LABEL: Final = "app.kubernetes.io/managed-by"

EXECUTOR_LABEL: Final = "cornserve.ai/executor"
"""The key of the executor group, on its pods, Deployment, Services and EndpointSlices."""

SCHEMA_HASH_ANNOTATION: Final = "cornserve.ai/schema-hash"
"""A hash of the schema of a CRD, without descriptions."""
