"""Responses that are not those of an API server."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from cornserve.kubernetes.client import KubeClient
from cornserve.kubernetes.errors import KubeUnavailableError
from cornserve.kubernetes.resources import PODS


@pytest.mark.parametrize("content", ["<html>Sign in</html>", "[]"])
async def test_a_page_in_place_of_an_object_is_an_error_of_the_api_server(tmp_path: Path, content: str) -> None:
    async def respond(_: web.Request) -> web.Response:
        return web.Response(text=content)

    api = web.Application()
    api.router.add_get("/{path:.*}", respond)
    async with TestServer(api) as server:
        cluster = {"name": "a", "cluster": {"server": str(server.make_url("/")).rstrip("/")}}
        context = {"name": "a", "context": {"cluster": "a", "user": "a"}}
        user = {"name": "a", "user": {}}
        config = {"clusters": [cluster], "contexts": [context], "users": [user], "current-context": "a"}
        (kubeconfig := tmp_path / "kubeconfig").write_text(json.dumps(config))

        async with KubeClient.connect(kubeconfig=kubeconfig, field_manager="test") as client:
            with pytest.raises(KubeUnavailableError, match="has sent no JSON object"):
                await client.list(PODS)
            with pytest.raises(KubeUnavailableError, match="has sent no JSON object"):
                async with client.watch(PODS, "1") as events:
                    await anext(events)
