"""Deployments of Hugging Face ids: their config files decide before anything is stored."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from huggingface_hub import constants

from cornserve.app.load import load_app
from cornserve.client import DeployTargetError
from cornserve.client.deploy_target import DeployTarget, resolve_target
from tests.hub import COMMIT, GATED, MODEL, Hub, running_hub

CAUSAL = {"architectures": ["LlamaForCausalLM"], "model_type": "llama"}

RERANKER = {"architectures": ["BertForSequenceClassification"], "id2label": {"0": "LABEL_0"}}


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The cache of a machine without a network."""
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    return tmp_path


@pytest.fixture
def hub(cache: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    with running_hub({"config.json": json.dumps(CAUSAL).encode(), "model.safetensors": b"weights"}) as hub:
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setattr(constants, "ENDPOINT", hub.url)
        files = "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", hub.url + files)
        yield hub


def cached(cache: Path, model: str, **files: object) -> str:
    """Adds a model to the cache. Names of files end in `__json` or `__jinja`."""
    directory = cache / f"models--{model.replace('/', '--')}"
    snapshot = directory / "snapshots" / COMMIT
    snapshot.mkdir(parents=True)
    (directory / "refs").mkdir()
    (directory / "refs" / "main").write_text(COMMIT)
    for name, content in files.items():
        text = content if isinstance(content, str) else json.dumps(content)
        (snapshot / name.replace("__", ".")).write_text(text)
    return model


def paths(target: DeployTarget) -> list[str]:
    """Returns the types of the app's paths, as the gateway loads them."""
    app = load_app(target.name, target.spec, "an_app_of_an_id")
    return [type(path).__name__ for path in app.paths]


def test_the_files_on_the_hub_decide_and_the_weights_are_not_downloaded(hub: Hub) -> None:
    hub.files["config.json"] = json.dumps({"architectures": ["LlavaNextForConditionalGeneration"]}).encode()

    target = resolve_target(MODEL)

    assert (paths(target), target.warning) == (["Mllm"], "")
    assert hub.downloads == {"config.json": 1}


def test_without_the_hub_the_cache_decides(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    first = resolve_target(MODEL)
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")

    assert resolve_target(MODEL) == first


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (GATED, "access to it is restricted: give a token"),
        ("team/unknown", "has no such model, or it is private"),
    ],
)
def test_without_files_the_name_decides_with_a_warning(hub: Hub, model: str, reason: str) -> None:
    target = resolve_target(model)

    assert paths(target) == ["Chat"]
    assert target.warning.startswith(
        f"no directory {model} exists, and the config files of this id cannot be read, so its name decides "
        "what it is (path chat): "
    )
    assert reason in target.warning


def test_an_id_that_looks_like_a_path_is_refused_if_only_its_directory_exists(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models").mkdir()

    problem = r"models/qwen does not exist in the directory models, and as a Hugging Face id .* has no such model"
    with pytest.raises(DeployTargetError, match=problem):
        resolve_target("models/qwen")


@pytest.mark.parametrize(
    ("id", "directory", "problem"),
    [
        ("models/qwen", "models", "models/qwen does not exist in the directory .*models, and as a Hugging Face id "),
        (
            "models/qwen",
            "models/qwen",
            "models/qwen is a relative path, and .*: give the absolute path /.*/models/qwen",
        ),
        ("qwen", "qwen", "qwen is a relative path, and .*: give the absolute path /.*/qwen"),
    ],
)
@pytest.mark.parametrize("working", [True, False])
def test_an_app_whose_model_is_a_relative_path_is_refused(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, id: str, directory: str, problem: str, *, working: bool
) -> None:
    (file := tmp_path / "apps" / "app.py").parent.mkdir()
    (parent := tmp_path / "here").mkdir()
    monkeypatch.chdir(parent)
    ((parent if working else file.parent) / directory).mkdir(parents=True)
    file.write_text(
        "from cornserve import App\nfrom cornserve_tasklib import Chat\n"
        f"app = App(name='mine', paths=[Chat(model_id={id!r})])\n"
    )

    with pytest.raises(DeployTargetError, match=problem):
        resolve_target(file)


def test_an_app_has_a_model_of_the_hub_whatever_directories_exist(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / MODEL).mkdir(parents=True)
    source = (
        f"from cornserve import App\nfrom cornserve_tasklib import Chat\napp = App('mine', [Chat(model_id={MODEL!r})])"
    )

    assert resolve_target(source).name == "mine"


def test_the_files_of_an_image_model_decide_how_it_draws(cache: Path) -> None:
    model = cached(cache, "team/chat", config__json=CAUSAL)
    drawer = cached(cache, "team/pictures", model_index__json={"_class_name": "FluxPipeline"})

    target = resolve_target(model, drawer=drawer)

    assert (paths(target), target.warning) == (["DrawingChat"], "")


def test_an_image_model_whose_files_cannot_be_read_is_guessed_with_a_warning(cache: Path) -> None:
    model = cached(cache, "team/chat", config__json=CAUSAL)

    target = resolve_target(model, drawer="Qwen/Qwen-Image")

    assert paths(target) == ["DrawingChat"]
    assert target.warning.startswith("no directory Qwen/Qwen-Image exists, and the config files of this id cannot")


def test_a_revision_that_does_not_exist_is_named(hub: Hub) -> None:
    target = resolve_target(MODEL, revision="v9")

    assert target.warning.endswith("it has no revision v9: give a branch, tag or commit")


@pytest.mark.parametrize(("file", "kind"), [("model-q4.gguf", "GGUF"), ("onnx/model.onnx", "ONNX")])
def test_weights_in_other_formats_are_refused(hub: Hub, file: str, kind: str) -> None:
    del hub.files["model.safetensors"]
    hub.files[file] = b"weights"

    with pytest.raises(DeployTargetError, match=f"{MODEL} consists of {kind} files"):
        resolve_target(MODEL)


def test_a_hub_that_does_not_answer_delays_a_deployment_for_seconds_only(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cornserve.client.hub_models.TIMEOUT_SECONDS", 0.1)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{silent.getsockname()[1]}")
        assert "does not answer, and" in resolve_target("Qwen/Qwen3-0.6B").warning


def test_a_hub_that_hangs_while_it_sends_files_delays_a_deployment_for_seconds_only(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cornserve.client.hub_models.LIMIT_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        files = "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr(
            constants, "HUGGINGFACE_CO_URL_TEMPLATE", f"http://127.0.0.1:{silent.getsockname()[1]}{files}"
        )
        assert "the hub does not send the files, and" in resolve_target(MODEL).warning


@pytest.mark.parametrize(
    ("model", "files", "found"),
    [
        ("unsloth/Llama-3.2-1B", {"config__json": CAUSAL}, "Chat"),
        ("team/chat-AWQ", {"config__json": CAUSAL | {"quantization_config": {"quant_method": "awq"}}}, "Chat"),
        ("unsloth/Qwen2.5-VL-3B", {"config__json": ("Qwen2_5_VLForConditionalGeneration", "qwen2_5_vl")}, "Mllm"),
        ("team/GLM-4.5V", {"config__json": ("Glm4vMoeForConditionalGeneration", "glm4v_moe")}, "Mllm"),
        ("team/vectors", {"config__json": ("Qwen3ForCausalLM", "qwen3"), "modules__json": "[]"}, "Embed"),
        ("team/bert", {"config__json": ("BertModel", "bert")}, "Embed"),
        ("team/reranker", {"config__json": RERANKER}, "Score"),
        ("team/whisper-finetune", {"config__json": ("WhisperForConditionalGeneration", "whisper")}, "Transcribe"),
        ("team/tts", {"config__json": ("VitsModel", "vits"), "tokenizer_config__json": {"phonemize": False}}, "Speak"),
        ("team/pictures", {"model_index__json": {"_class_name": "FluxPipeline"}}, "GenerateImages"),
        ("team/edits", {"model_index__json": {"_class_name": "QwenImageEditPipeline"}}, "EditImages"),
    ],
)  # fmt: skip
def test_ids_of_each_kind_are_served_by_their_files(
    cache: Path, model: str, files: dict[str, object], found: str
) -> None:
    target = resolve_target(cached(cache, model, **_configs(files)))

    assert (paths(target)[0], target.warning) == (found, "")


@pytest.mark.parametrize(
    ("model", "files", "reason"),
    [
        ("suno/bark", {"config__json": ("BarkModel", "bark")}, "BarkModel"),
        ("team/sdxl", {"model_index__json": {"_class_name": "StableDiffusionXLPipeline"}}, "StableDiffusionXLPipeline"),
        ("team/broken", {"config__json": "{"}, "team/broken/config.json is not a JSON object"),
        ("team/empty", {}, "team/empty is not a model: it contains no config.json"),
        ("team/sql", {"adapter_config__json": {"base_model_name_or_path": "a/b"}}, "is a LoRA adapter of a/b, not"),
        ("hexgrad/kokoro", {"config__json": {"istftnet": {}, "plbert": {}}}, "is a Kokoro model"),
        ("team/voice", {"cosyvoice2__yaml": "llm: 1"}, "is a CosyVoice model"),
        ("team/decoder", {"config__json": ("WhisperForCausalLM", "whisper")}, "WhisperForCausalLM, which vLLM"),
        ("team/tokenizer", {"config__json": {}}, "team/tokenizer/config.json does not list architectures"),
    ],
)  # fmt: skip
def test_ids_that_cannot_be_served_are_refused_by_what_they_are(
    cache: Path, model: str, files: dict[str, object], reason: str
) -> None:
    with pytest.raises(DeployTargetError) as refusal:
        resolve_target(cached(cache, model, **_configs(files)))
    assert reason in str(refusal.value)
    assert model in str(refusal.value)


def _configs(files: dict[str, object]) -> dict[str, object]:
    """Returns the files, with a config.json for each pair of an architecture and a model type."""
    return {
        name: {"architectures": [content[0]], "model_type": content[1]} if isinstance(content, tuple) else content
        for name, content in files.items()
    }
