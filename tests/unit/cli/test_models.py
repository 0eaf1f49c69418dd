"""`cornserve models`: the known models."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from cornserve.cli.commands import app


def rows(cli: CliRunner, *arguments: str) -> dict[str, dict[str, object]]:
    result = cli.invoke(app, ["models", *arguments, "--json"])
    assert result.exit_code == 0
    return {row["architecture"]: row for row in json.loads(result.stdout)}


@pytest.mark.parametrize(
    ("architecture", "inputs", "outputs", "paths", "tested"),
    [
        ("LlamaForCausalLM", "text", "text", ["chat"], "exact in CI"),
        (
            "Qwen2_5_VLForConditionalGeneration",
            "text, image, video",
            "text",
            ["monolith", "e-l", "e-el"],
            "exact in CI",
        ),
        ("WhisperForConditionalGeneration", "audio", "text", ["transcribe"], "exact in CI"),
        ("FluxPipeline", "text", "image", ["image"], "exact in CI"),
        ("AriaForConditionalGeneration", "text, image", "text", ["monolith"], "exact in make families"),
        ("VoxtralForConditionalGeneration", "text, audio", "text", ["monolith", "transcribe"], "serves, untested"),
        ("BarkModel", "text", "audio", [], "refused, because"),
        ("WanPipeline", "text", "video", [], "refused, because"),
    ],
)
def test_a_model_has_its_modalities_paths_and_tests(
    cli: CliRunner, architecture: str, inputs: str, outputs: str, paths: list[str], tested: str
) -> None:
    row = rows(cli, architecture)[architecture]

    assert (row["inputs"], row["outputs"], row["paths"]) == (inputs, outputs, paths)
    assert str(row["tested"]).startswith(tested)


def test_a_word_selects_models(cli: CliRunner) -> None:
    assert {"SiglipModel", "CLIPModel"} <= rows(cli, "VECTORS").keys() < rows(cli).keys()


def test_the_rows_of_the_table_are_not_divided(cli: CliRunner) -> None:
    header, *lines = cli.invoke(app, ["models"]).stdout.splitlines()

    assert header.split() == ["architecture", "in", "out", "paths", "tested"]
    assert len(lines) == len(rows(cli))
    assert "…" not in "".join(lines)


def test_an_unknown_word_is_an_error_of_one_line(cli: CliRunner) -> None:
    result = cli.invoke(app, ["models", "xyzzy"])

    assert result.exit_code == 1
    assert result.stderr == "error: no known model has 'xyzzy' in its row: run `cornserve models` for all of them\n"
