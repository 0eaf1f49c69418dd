"""Kubeconfig files and responses that cannot be used."""

from __future__ import annotations

import json
from base64 import b64encode
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from cornserve.kubernetes.client import KubeClient
from cornserve.kubernetes.errors import KubeConfigError, KubeUnavailableError
from cornserve.kubernetes.resources import PODS


def write_kubeconfig(directory: Path, **cluster: str) -> Path:
    context = {"name": "a", "context": {"cluster": "a", "user": "a"}}
    config = {
        "clusters": [{"name": "a", "cluster": cluster}],
        "contexts": [context],
        "users": [{"name": "a", "user": {}}],
        "current-context": "a",
    }
    (file := directory / "kubeconfig").write_text(json.dumps(config))
    return file


async def test_certificates_that_cannot_be_used_are_an_error_of_the_kubeconfig(tmp_path: Path) -> None:
    authority = b64encode(b"no certificate").decode()
    kubeconfig = write_kubeconfig(tmp_path, server="https://127.0.0.1:1", **{"certificate-authority-data": authority})

    with pytest.raises(KubeConfigError, match="cannot use the certificates for the API server https"):
        async with KubeClient.connect(kubeconfig=kubeconfig, field_manager="test"):
            pass


@pytest.mark.parametrize("content", ["<html>Sign in</html>", "[]"])
async def test_a_page_in_place_of_an_object_is_an_error_of_the_api_server(tmp_path: Path, content: str) -> None:
    async def respond(_: web.Request) -> web.Response:
        return web.Response(text=content)

    api = web.Application()
    api.router.add_get("/{path:.*}", respond)
    async with TestServer(api) as server:
        kubeconfig = write_kubeconfig(tmp_path, server=str(server.make_url("/")).rstrip("/"))
        async with KubeClient.connect(kubeconfig=kubeconfig, field_manager="test") as client:
            with pytest.raises(KubeUnavailableError, match="has sent no JSON object"):
                await client.list(PODS)
            with pytest.raises(KubeUnavailableError, match="has sent no JSON object"):
                async with client.watch(PODS, "1") as events:
                    await anext(events)
