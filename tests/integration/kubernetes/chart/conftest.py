from __future__ import annotations

from pathlib import Path

import pytest

from tests.kubernetes.helm import HelmRelease


@pytest.fixture
def release(kubeconfig: Path, kube_namespace: str) -> HelmRelease:
    return HelmRelease("cornserve", kubeconfig, kube_namespace)
