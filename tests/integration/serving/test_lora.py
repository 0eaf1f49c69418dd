"""Apps of one model with different LoRA adapters, called with the official client."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from openai import BadRequestError, OpenAI

from tests.integration.serving.conftest import CommandLine
from tests.models.lora_adapters import make_adapter

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def tokens(client: OpenAI, app: str) -> str:
    completion = client.completions.create(
        model=app, prompt="Hello", temperature=0, max_tokens=12, extra_body={"ignore_eos": True}
    )
    return completion.choices[0].text


def test_apps_with_different_adapters_share_an_executor(
    cornserve: CommandLine, client: OpenAI, tiny_llama: Path, tmp_path: Path
) -> None:
    modules = {
        name: str(make_adapter(tiny_llama, tmp_path / name, ["q_proj", "v_proj"], seed=seed, scale=2.0))
        for seed, name in enumerate(["sql", "poems"])
    }
    options = ["--option", f"lora_modules={json.dumps(modules)}", "--option", f"kv_cache_memory_bytes={64 << 20}"]

    base = cornserve.json("deploy", str(tiny_llama), "--name", "adaptable", *options)
    apps = [cornserve.json("deploy", str(tiny_llama), *options, "--lora", name) for name in modules]
    keys = {group["key"] for app in (base, *apps) for group in app["status"]["groups"]}
    listed = {model.id for model in client.models.list()}
    responses = [tokens(client, app) for app in ("adaptable", "sql", "poems", "adaptable")]
    shown = cornserve.run("status", "sql").stdout
    refused = cornserve.run("deploy", str(tiny_llama), *options, "--lora", "songs")

    assert len(keys) == 1
    assert {"adaptable", "sql", "poems"} <= listed
    assert responses[0] == responses[3]
    assert len(set(responses)) == 3
    assert "LoRA adapter: sql" in shown
    assert (refused.returncode, refused.stderr.count("\n")) == (1, 1)
    assert "lora: no adapter 'songs' in lora_modules (sql, poems): add its directory there" in refused.stderr
    with pytest.raises(BadRequestError, match="a request cannot select an adapter"):
        client.completions.create(model="adaptable", prompt="Hello", extra_body={"lora": "sql"})
    assert tokens(client, "adaptable") == responses[0]
    for app in ("adaptable", "sql", "poems"):
        assert cornserve.run("delete", app).returncode == 0
