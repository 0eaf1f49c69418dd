"""Labels and annotations of Cornserve."""

EXECUTOR_LABEL = "cornserve.ai/executor"
"""The key of the executor group, on its pods, Deployment, Services and EndpointSlices."""

SCHEMA_HASH_ANNOTATION = "cornserve.ai/schema-hash"
"""A hash of the schema of a CRD, without descriptions."""
