"""`cornserve models`: the known models, and the comparison of one with vLLM."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cornserve.cli.commands import app
from cornserve.cli.model_comparison import ChatOutput, Comparison, ComparisonResult, compare, comparison_chats
from cornserve_tasklib.chat_request import ChatRequest
from tests.unit.gateway.sources import ECHO


def rows(cli: CliRunner, *arguments: str) -> dict[str, dict[str, object]]:
    result = cli.invoke(app, ["models", *arguments, "--json"])
    assert result.exit_code == 0
    return {row["architecture"]: row for row in json.loads(result.stdout)}


APART = ("monolith", "e-l", "e-el", "ep-d", "e-p-d", "e-pd")


@pytest.mark.parametrize(
    ("architecture", "inputs", "outputs", "paths", "tested"),
    [
        ("LlamaForCausalLM", "text", "text", ["chat", "p-d", "pd"], "exact in CI"),
        (
            "Qwen2_5_VLForConditionalGeneration",
            "text, image, video",
            "text",
            [*APART],
            "exact in CI",
        ),
        ("WhisperForConditionalGeneration", "audio", "text", ["transcribe"], "exact in CI"),
        ("BertForSequenceClassification", "text", "scores", ["score", "classify"], "exact in CI"),
        ("FluxPipeline", "text", "image", ["image"], "exact in CI"),
        ("AriaForConditionalGeneration", "text, image", "text", [*APART], "exact in make families"),
        ("VoxtralForConditionalGeneration", "text, audio", "text", ["monolith", "transcribe"], "serves, untested"),
        ("CLIPModel", "text, image", "vectors", ["embed"], "exact in make families"),
        ("BarkModel", "text", "audio", [], "refused, because"),
        ("WanPipeline", "text", "video", [], "refused, because"),
    ],
)
def test_a_model_has_its_modalities_paths_and_tests(
    cli: CliRunner, architecture: str, inputs: str, outputs: str, paths: list[str], tested: str
) -> None:
    row = rows(cli, "--search", architecture)[architecture]

    assert (row["inputs"], row["outputs"], row["paths"]) == (inputs, outputs, paths)
    assert str(row["tested"]).startswith(tested)


def test_a_word_selects_models(cli: CliRunner) -> None:
    assert {"SiglipModel", "CLIPModel"} <= rows(cli, "--search", "VECTORS").keys() < rows(cli).keys()


def test_the_rows_of_the_table_are_not_divided(cli: CliRunner) -> None:
    header, *lines = cli.invoke(app, ["models"]).stdout.splitlines()

    assert header.split() == ["architecture", "in", "out", "paths", "tested"]
    assert len(lines) == len(rows(cli))
    assert "…" not in "".join(lines)


def test_an_unknown_word_is_an_error_of_one_line(cli: CliRunner) -> None:
    result = cli.invoke(app, ["models", "--search", "xyzzy"])

    assert result.exit_code == 1
    assert result.stderr == "error: no known model has 'xyzzy' in its row: run `cornserve models` for all of them\n"


def outputs(*tokens: int, logprob: float = -1.0) -> ChatOutput:
    return ChatOutput(tokens=[*tokens], logprobs=[logprob] * len(tokens))


REFUSED = ChatOutput(error="too many images")


@pytest.mark.parametrize(
    ("expected", "found", "dtype", "result", "details"),
    [
        (outputs(1, 2), outputs(1, 2), "float32", ComparisonResult.EQUAL, "2 tokens are equal"),
        (outputs(1, 2), outputs(1, 3), "float32", ComparisonResult.DIFFERENT, "the tokens differ from position 1"),
        (outputs(1, 2), outputs(1), "float32", ComparisonResult.DIFFERENT, "the tokens differ from position 1"),
        (
            *(outputs(1, 2, 3), outputs(1, 4, 5, logprob=-1.2), "bfloat16", ComparisonResult.CLOSE),
            "1 of 3 tokens are equal, and the log probabilities differ by up to 0.2",
        ),
        (
            *(outputs(1, 2, 3), outputs(1, 4, 5, logprob=-1.5), "float16", ComparisonResult.DIFFERENT),
            "1 of 3 tokens are equal, and the log probabilities differ by up to 0.5",
        ),
        (outputs(1, 2), outputs(), "bfloat16", ComparisonResult.DIFFERENT, "0 of 2 tokens are generated"),
        (REFUSED, REFUSED, "float32", ComparisonResult.REFUSED, "vLLM refuses it, too: too many images"),
        (REFUSED, outputs(1), "float32", ComparisonResult.DIFFERENT, "only vLLM refuses it: too many images"),
        (outputs(1), REFUSED, "bfloat16", ComparisonResult.DIFFERENT, "vLLM does not refuse it: too many images"),
    ],
)
def test_a_path_is_compared_by_tokens_or_log_probabilities(
    expected: ChatOutput, found: ChatOutput, dtype: str, result: ComparisonResult, details: str
) -> None:
    comparison = compare("e-l", "1 image", expected, found, dtype)

    assert comparison == Comparison("e-l", "1 image", result, details)


def test_a_model_is_compared_with_each_of_its_modalities() -> None:
    chats = comparison_chats(["image", "audio"])

    assert [*chats] == ["text", "1 image", "2 images", "1 audio", "2 audios", "image + audio"]
    for chat in chats.values():
        ChatRequest.model_validate(chat)
    assert {name: [part["type"] for part in chat["messages"][0]["content"]] for name, chat in chats.items()} == {
        "text": ["text"],
        "1 image": ["image_url", "text"],
        "2 images": ["image_url", "image_url", "text"],
        "1 audio": ["audio_url", "text"],
        "2 audios": ["audio_url", "audio_url", "text"],
        "image + audio": ["image_url", "audio_url", "text"],
    }


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["app.py"], "app.py is an app: give a model directory or a Hugging Face id (OWNER/NAME)"),
        (["bert"], "bert has the path embed, and only chats are compared: try it with `cornserve deploy`"),
        (
            ["nothing"],
            "nothing does not exist: give a Python file (.py), a model directory or a Hugging Face id (OWNER/NAME)",
        ),
        (
            ["bert", "--option", "dtype"],
            "'dtype' is not a valid --option: give NAME=VALUE, such as max_model_len=32768",
        ),
    ],
)
def test_a_model_that_cannot_be_checked_is_an_error_of_one_line(
    cli: CliRunner, arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "app.py").write_text(ECHO)
    (tmp_path / "bert").mkdir()
    (tmp_path / "bert/config.json").write_text('{"architectures": ["BertModel"], "model_type": "bert"}')

    result = cli.invoke(app, ["models", "check", *arguments])

    assert (result.exit_code, result.stderr) == (1, f"error: {message}\n")
