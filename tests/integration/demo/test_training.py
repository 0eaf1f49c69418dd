"""The script that trains the demo models, and their data."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest
from jinja2.sandbox import ImmutableSandboxedEnvironment
from pydantic import ValidationError

from cornserve_demo import reader, speller
from cornserve_demo.classifier import classify_pair
from cornserve_demo.round_trip import Drawing
from cornserve_demo.shapes import ALL_SHAPES, HELD_OUT, TRAINED, describe, parse
from cornserve_demo.shapes import QUESTION as READERS_QUESTION
from cornserve_demo.spelling import LETTERS, WORDS, code_of, hear, make_frames, random_word, spell
from cornserve_demo.tokenizer import READER_TEMPLATE


@pytest.mark.slow
def test_training_makes_a_model_of_the_same_form_as_the_committed_one(tmp_path: Path) -> None:
    from cornserve_demo.language_model import train

    lines: list[str] = []

    train(tmp_path, steps=2, progress=lines.append)

    assert [line.partition(", ")[0] for line in lines] == ["language model: step 2 of 2"]
    assert_same_form(tmp_path, reader.MODEL)


@pytest.mark.slow
def test_training_makes_a_speaking_model_of_the_same_form_as_the_committed_one(tmp_path: Path) -> None:
    from cornserve_demo.omni_model import train

    lines: list[str] = []

    train(tmp_path, steps=2, progress=lines.append)

    assert [line.partition(", ")[0] for line in lines] == [
        "thinker: step 2 of 2",
        "talker: step 2 of 2",
        "vocoder: step 1 of 1",
    ]
    assert_same_form(tmp_path, speller.MODEL)


def assert_same_form(model: Path, committed: Path) -> None:
    assert shapes_of(model) == shapes_of(committed)
    assert config_of(model) == config_of(committed)
    assert (model / "tokenizer.json").read_text() == (committed / "tokenizer.json").read_text()


def shapes_of(model: Path) -> dict[str, list[int]]:
    from safetensors import safe_open

    with safe_open(model / "model.safetensors", "pt") as file:
        return {name: file.get_slice(name).get_shape() for name in file.keys()}  # noqa: SIM118 - not a mapping


def config_of(model: Path) -> object:
    return json.loads((model / "config.json").read_text())


def test_the_judge_recognizes_images_that_are_drawn_by_rules() -> None:
    drawn = reader.sample(100, seed=0)

    assert [classify_pair(image) for _, image in drawn] == [shapes for shapes, _ in drawn]
    assert classify_pair(drawn[0][1].rotate(180)) != drawn[0][0]


def test_the_evaluation_shows_pairs_that_training_does_not() -> None:
    assert not set(TRAINED) & set(HELD_OUT)
    assert len(TRAINED) + len(HELD_OUT) == len(ALL_SHAPES) * (len(ALL_SHAPES) + 1)


def test_the_letters_of_beeps_are_heard_in_noise() -> None:
    frames = make_frames()
    noise = np.random.default_rng(0)

    for word in (LETTERS, *WORDS):
        speech = np.concatenate([frames[code_of(character)] for character in spell(word)])
        assert hear(speech + noise.normal(0, 0.05, speech.shape).astype(np.float32)) == word
        assert hear(speech[: len(speech) // 2]) != word


def test_words_of_the_evaluation_are_not_trained() -> None:
    randomness = random.Random(0)
    trained = {random_word(randomness, held_out=False) for _ in range(2000)}
    evaluated = speller.sample(500, seed=0)

    assert not trained & set(evaluated)
    assert len(set(evaluated)) > 400


def test_a_description_is_read_as_a_person_writes_it() -> None:
    assert all(parse(describe(shapes)) == shapes for shapes in (*TRAINED, *HELD_OUT))
    assert describe(parse("A Red circle  and the blue square")) == "red circle and blue square"


@pytest.mark.parametrize(
    "text",
    ["", "a dog", "red", "red circle and", "red circle, blue square", "red circle and a dog", "and", "red circle " * 2],
)
def test_another_text_is_refused_with_the_known_words(text: str) -> None:
    with pytest.raises(ValidationError, match=r"only the colors red, .* and the shapes circle, .*: write one or two"):
        Drawing(prompt=text)


@pytest.mark.parametrize("seed", [-1, 1 << 32])
def test_a_seed_that_no_image_can_have_is_refused(seed: int) -> None:
    with pytest.raises(ValidationError, match="seed"):
        Drawing(prompt="red circle", seed=seed)


class RefusedQuestionError(Exception):
    """A chat template has refused the chat."""


def render(template: str, content: object) -> str:
    """Returns the prompt for a message of the user. Raises `RefusedQuestionError`."""

    def raise_exception(message: str) -> NoReturn:
        raise RefusedQuestionError(message)

    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    environment.globals["raise_exception"] = raise_exception
    messages = [{"role": "user", "content": content}]
    return environment.from_string(template).render(messages=messages, add_generation_prompt=True)


IMAGE = {"type": "image"}


def text_part(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def test_the_committed_reader_has_the_template_of_the_training() -> None:
    assert (reader.MODEL / "chat_template.jinja").read_text() == READER_TEMPLATE


def test_the_reader_answers_what_it_has_learned() -> None:
    assert READERS_QUESTION in render(READER_TEMPLATE, [IMAGE, text_part(READERS_QUESTION)])


def test_the_reader_accepts_the_image_of_the_warm_up() -> None:
    assert "<|image_pad|>" in render(READER_TEMPLATE, [IMAGE])


@pytest.mark.parametrize(
    "content", ["Hello!", READERS_QUESTION, [text_part(READERS_QUESTION)], [IMAGE, text_part("A dog?")]]
)
def test_the_reader_refuses_other_questions(content: object) -> None:
    with pytest.raises(RefusedQuestionError, match=r'answers only "What is in the image\?", with an image'):
        render(READER_TEMPLATE, content)
