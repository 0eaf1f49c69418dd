"""The script that trains the demo model."""

from __future__ import annotations

import json
from pathlib import Path

from cornserve_demo.classifier import classify_pair
from cornserve_demo.reader import MODEL, sample
from cornserve_demo.shapes import ALL_SHAPES, HELD_OUT, TRAINED


def test_training_makes_a_model_of_the_same_form_as_the_committed_one(tmp_path: Path) -> None:
    from cornserve_demo.language_model import train

    lines: list[str] = []

    train(tmp_path, steps=2, progress=lines.append)

    assert [line.partition(", ")[0] for line in lines] == ["language model: step 2 of 2"]
    assert shapes_of(tmp_path) == shapes_of(MODEL)
    assert config_of(tmp_path) == config_of(MODEL)
    assert (tmp_path / "tokenizer.json").read_text() == (MODEL / "tokenizer.json").read_text()


def shapes_of(model: Path) -> dict[str, list[int]]:
    from safetensors import safe_open

    with safe_open(model / "model.safetensors", "pt") as file:
        return {name: file.get_slice(name).get_shape() for name in file.keys()}  # noqa: SIM118 - not a mapping


def config_of(model: Path) -> object:
    return json.loads((model / "config.json").read_text())


def test_the_judge_recognizes_images_that_are_drawn_by_rules() -> None:
    drawn = sample(100, seed=0)

    assert [classify_pair(image) for _, image in drawn] == [shapes for shapes, _ in drawn]
    assert classify_pair(drawn[0][1].rotate(180)) != drawn[0][0]


def test_the_evaluation_shows_pairs_that_training_does_not() -> None:
    assert not set(TRAINED) & set(HELD_OUT)
    assert len(TRAINED) + len(HELD_OUT) == len(ALL_SHAPES) * (len(ALL_SHAPES) + 1)
