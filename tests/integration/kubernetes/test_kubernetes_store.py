"""The store of a Kubernetes namespace."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from cornserve.control.store.base import APPS, Store
from cornserve.control.store.kubernetes import KubernetesStore
from cornserve.kubernetes.client import KubeClient
from tests.kubernetes.record_resources import APP_RECORDS, plain_codec
from tests.unit.store.conformance import Connect, StoreConformance

CODECS = {APPS.name: plain_codec(APPS, APP_RECORDS)}


@pytest.fixture
def connect(kubeconfig: Path, record_crds: None) -> Connect:
    @asynccontextmanager
    async def open_store() -> AsyncIterator[Store]:
        async with KubeClient.connect(kubeconfig=kubeconfig, field_manager="cornserve") as client:
            yield KubernetesStore(client, CODECS)

    return open_store


class TestKubernetesStore(StoreConformance):
    pass
