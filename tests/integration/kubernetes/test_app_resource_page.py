"""The reference page of the App resource: its fields are current, and the examples of resources are valid."""

from __future__ import annotations

import pytest
import yaml

from cornserve.kubernetes_resources.spec_mapping import decode_spec
from tests.integration.docs import app_resource_reference
from tests.integration.docs.pages import CodeBlock, blocks
from tests.kubernetes.api_server import ApiServer

PAGES = ["docs/reference/app-resource.md", "docs/how-to/serve-lora-adapters.md"]
EXAMPLES = [block for page in PAGES for block in blocks(page) if block.language == "yaml"]


def test_the_fields_are_current() -> None:
    assert app_resource_reference.committed().strip() == app_resource_reference.generated().strip()


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.title)
def test_the_api_server_accepts_the_examples(api_server: ApiServer, kube_namespace: str, example: CodeBlock) -> None:
    api_server.kubectl("apply", "--server-side", "-n", kube_namespace, "-f", "-", stdin=example.code)

    decode_spec(yaml.safe_load(example.code)["spec"])
