"""The views of `kubectl`, the command line and clients on apps in pods."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from openai import OpenAI

from tests.cluster.apps.sources import parrot
from tests.cluster.installation import Installation, versions
from tests.waiting import until


@pytest.fixture
def name() -> str:
    """The name of an app, also used as its prefix, so that no other app shares its executors."""
    return f"parrot-{uuid.uuid4().hex[:6]}"


@pytest.fixture
def openai(installed: Installation, gateway_url: str) -> Iterator[OpenAI]:
    """A client that never repeats a request, although its gateway may still load an app that the other one serves."""
    with OpenAI(base_url=f"{gateway_url}/v1", api_key=installed.api_key, max_retries=0, timeout=60) as client:
        yield client


def ask(client: OpenAI, app: str, text: str = "to you") -> str | None:
    completion = client.chat.completions.create(model=app, messages=[{"role": "user", "content": text}])
    return completion.choices[0].message.content


def inline(name: str, **settings: Any) -> dict[str, Any]:
    """Returns the spec of an app with inline source."""
    return {"source": {"inline": parrot(name, prefix=f"{name} ", **settings)}}


def table(installed: Installation, app: str) -> dict[str, str]:
    """Returns the columns of `kubectl get app`."""
    header, row = installed.kubectl("get", "app", app).splitlines()
    return dict(zip(header.split(), row.split(), strict=True))


def pods_of(installed: Installation, app: str) -> list[Any]:
    """Returns the pods that the selector of the app's scale subresource finds."""
    selector = installed.get("app", app)["status"]["selector"]
    found: list[Any] = installed.get("pods", f"--selector={selector}")["items"]
    return found


def test_an_app_that_the_command_line_deploys_answers_the_openai_client(
    installed: Installation, openai: OpenAI, name: str, tmp_path: Path
) -> None:
    file = tmp_path / "parrot.py"
    file.write_text(parrot(name, prefix=f"{name} "))

    deployed = installed.cornserve("deploy", str(file), "--timeout", "180")

    assert deployed.exit_code == 0, deployed.output
    assert ask(openai, name) == f"{name} to you "
    stream = openai.chat.completions.create(model=name, messages=[{"role": "user", "content": "a b"}], stream=True)
    assert [chunk.choices[0].delta.content for chunk in stream if chunk.choices][:3] == [f"{name} ", "a ", "b "]
    assert table(installed, name)["READY"] == "True"
    deleted = installed.cornserve("delete", name)
    assert deleted.exit_code == 0, deleted.output


def test_an_app_that_kubectl_applies_answers_and_leaves_nothing(
    installed: Installation, openai: OpenAI, name: str
) -> None:
    installed.apply_app(name, inline(name))
    installed.wait_until_ready(name)

    assert ask(openai, name) == f"{name} to you "
    assert table(installed, name)["READY"] == "True"
    assert "Serving" in installed.kubectl("describe", "app", name)
    status = installed.get("app", name)["status"]
    assert status["url"] == f"http://cornserve.{installed.namespace}.svc/v1"
    assert [executor.get("gpus", 0) for executor in status["executors"]] == [0]
    selector = installed.get("app", name)["status"]["selector"]
    installed.kubectl("delete", "app", name)
    for kind in ("deployment", "service", "poddisruptionbudget", "pod", "endpointslice"):
        installed.kubectl("wait", "--for=delete", kind, f"--selector={selector}", "--timeout=180s")
    installed.kubectl("wait", "--for=delete", f"approute/{name}", "--timeout=180s")


async def test_a_changed_config_map_is_a_new_version(installed: Installation, openai: OpenAI, name: str) -> None:
    def config_map(prefix: str) -> dict[str, Any]:
        data = {"app.py": parrot(name, prefix=prefix)}
        return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}

    installed.cluster.apply(installed.namespace, config_map("first "))
    installed.apply_app(name, {"source": {"configMapKeyRef": {"name": name, "key": "app.py"}}})
    installed.wait_until_ready(name)
    assert ask(openai, name) == "first to you "

    installed.cluster.apply(installed.namespace, config_map("second "))

    await until(lambda: ask(openai, name) == "second to you ")
    installed.kubectl("delete", "app", name)


def test_scaling_tells_the_truth(installed: Installation, openai: OpenAI, name: str) -> None:
    installed.apply_app(name, inline(name))
    installed.wait_until_ready(name)

    installed.kubectl("scale", "app", name, "--replicas=2")
    installed.wait_for(name, "jsonpath={.status.readyReplicas}=2")
    assert len(pods_of(installed, name)) == 2
    assert (table(installed, name)["DESIRED"], table(installed, name)["REPLICAS"]) == ("2", "2")

    installed.kubectl("scale", "app", name, "--replicas=0")
    installed.wait_for(name, "condition=Ready=False")
    assert installed.condition(name, "Ready")["reason"] == "ScaledToZero"

    scaled = installed.cornserve("scale", name, "1")
    assert scaled.exit_code == 0, scaled.output
    installed.wait_until_ready(name)
    assert ask(openai, name) == f"{name} to you "
    installed.kubectl("delete", "app", name)


def test_streams_of_a_deleted_pod_continue_on_another(installed: Installation, openai: OpenAI, name: str) -> None:
    installed.apply_app(name, inline(name, seconds=30) | {"replicas": 2})
    installed.wait_for(name, "jsonpath={.status.readyReplicas}=2")
    text = " ".join(f"word{number}" for number in range(60))

    def read(begun: Event) -> str:
        parts = []
        messages: Any = [{"role": "user", "content": text}]
        for chunk in openai.chat.completions.create(model=name, messages=messages, stream=True):
            begun.set()
            parts += [choice.delta.content or "" for choice in chunk.choices]
        return "".join(parts)

    with ThreadPoolExecutor(6) as pool:
        begun = [Event() for _ in range(6)]
        streams = [pool.submit(read, event) for event in begun]
        for event in begun:
            assert event.wait(60)
        installed.kubectl("delete", "pod", pods_of(installed, name)[0]["metadata"]["name"])
        assert not any(stream.done() for stream in streams)

        assert {stream.result() for stream in streams} == {f"{name} {text} "}
    installed.kubectl("delete", "app", name)


async def test_a_restart_replaces_the_pods(installed: Installation, openai: OpenAI, name: str) -> None:
    installed.apply_app(name, inline(name))
    installed.wait_until_ready(name)
    (before,) = pods_of(installed, name)

    installed.kubectl("patch", "app", name, "--type=merge", "--patch", '{"spec": {"restart": {"id": "again"}}}')
    await until(lambda: before["metadata"]["name"] not in {pod["metadata"]["name"] for pod in pods_of(installed, name)})
    installed.wait_until_ready(name)
    assert ask(openai, name) == f"{name} to you "

    (before,) = pods_of(installed, name)
    restarted = installed.cornserve("restart", name, "--timeout", "180")
    assert restarted.exit_code == 0, restarted.output
    assert [pod["metadata"]["name"] for pod in pods_of(installed, name)] != [before["metadata"]["name"]]
    assert ask(openai, name) == f"{name} to you "
    installed.kubectl("delete", "app", name)


def test_an_app_that_does_not_import_is_not_accepted(installed: Installation, openai: OpenAI, name: str) -> None:
    installed.apply_app(name, inline(name))
    installed.wait_until_ready(name)

    installed.apply_app(name, {"source": {"inline": "import missing_package"}})

    installed.wait_for(name, "condition=Accepted=False")
    accepted = installed.condition(name, "Accepted")
    assert accepted["reason"] == "ImportFailed"
    assert "No module named 'missing_package'" in accepted["message"]
    assert accepted["observedGeneration"] == 2
    assert "missing_package" in installed.kubectl("describe", "app", name)
    assert installed.condition(name, "Available")["status"] == "True"
    assert ask(openai, name) == f"{name} to you "
    installed.kubectl("delete", "app", name)


def test_an_executor_that_does_not_start_shows_its_log(installed: Installation, openai: OpenAI, name: str) -> None:
    installed.apply_app(name, inline(name))
    installed.wait_until_ready(name)

    installed.apply_app(name, inline(name, fail_start="the model is broken"))

    installed.wait_for(name, 'jsonpath={.status.conditions[?(@.type=="Ready")].reason}=ExecutorFailed')
    ready, degraded = installed.condition(name, "Ready"), installed.condition(name, "Degraded")
    assert ready["status"] == "False"
    assert "RuntimeError: the model is broken" in degraded["message"].splitlines()[-1]
    assert "the model is broken" in installed.kubectl("describe", "app", name)
    assert ask(openai, name) == f"{name} to you "
    installed.kubectl("delete", "app", name)


def test_a_pod_template_with_another_service_account_is_refused(installed: Installation, name: str) -> None:
    template = {"spec": {"serviceAccountName": "cornserve-controller"}}
    installed.apply_app(name, {**inline(name), "executors": [{"name": "*", "podTemplate": template}]})

    installed.wait_for(name, 'jsonpath={.status.conditions[?(@.type=="Ready")].reason}=InvalidPodTemplate')
    assert "spec.serviceAccountName cannot be changed" in installed.condition(name, "Ready")["message"]
    deployments = installed.get("deployments")["items"]
    owners = {owner["uid"] for item in deployments for owner in item["metadata"].get("ownerReferences", ())}
    assert installed.get("app", name)["metadata"]["uid"] not in owners
    installed.kubectl("delete", "app", name)


def test_the_api_server_refuses_a_wrong_app(installed: Installation, name: str) -> None:
    both = {**inline(name), "model": {"id": "Qwen/Qwen3-0.6B"}}

    with pytest.raises(AssertionError, match="exactly one of model"):
        installed.apply_app(name, both)
    with pytest.raises(AssertionError, match="field not declared in schema"):
        installed.apply_app(name, {**inline(name), "replica": 2})


async def test_applying_the_same_manifest_changes_nothing(installed: Installation, name: str) -> None:
    installed.apply_app(name, inline(name))
    installed.wait_until_ready(name)
    selector = installed.get("app", name)["status"]["selector"]
    before = versions(installed, name, selector)
    assert len(before) >= 5

    for _ in range(5):
        installed.apply_app(name, inline(name))

    assert versions(installed, name, selector) == before
    installed.kubectl("delete", "app", name)
