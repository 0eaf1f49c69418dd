"""Documents: strict parsing, and errors in one line with field and reason."""

from __future__ import annotations

from pathlib import Path

import pytest

from cornserve_planner.errors import InvalidInputError
from cornserve_planner.model.document import ModelDocument

GOOD = """
format: cornserve-planner/model
version: 1
name: tiny
components:
  encoder: {}
  llm: {after: [encoder]}
options:
  E: {components: [encoder]}
  L: {components: [llm], gpus: 2}
  EL: {components: [encoder, llm], gpus: 2}
paths:
  - [EL]
  - [E, L]
  - [E, EL]
"""


@pytest.mark.parametrize(
    ("before", "after", "error"),
    [
        ("format: cornserve-planner/model\n", "", "m.yaml: format: is missing: write 'cornserve-planner/model'"),
        ("/model\n", "/plan\n", "m.yaml: format: must be 'cornserve-planner/model', not 'cornserve-planner/plan'"),
        ("version: 1\n", "", "m.yaml: version: is missing: write 1"),
        ("version: 1", "version: 2", "m.yaml: version: unsupported version 2: this release reads version 1"),
        ("version: 1", "version: true", "m.yaml: version: unsupported version True: this release reads version 1"),
        ("name: tiny", "", "m.yaml: name: is missing"),
        ("name: tiny", "nmae: tiny", "m.yaml: name: is missing"),
        ("name: tiny", "name: tiny\ncolour: red", "m.yaml: colour: is not a field of cornserve-planner/model"),
        ("gpus: 2}\n  EL", "gpus: 0}\n  EL", "m.yaml: options.L.gpus: must be greater than or equal to 1, not 0"),
        ("gpus: 2}\n  EL", 'gpus: "2"}\n  EL', "m.yaml: options.L.gpus: must be a valid integer, not '2'"),
        ("gpus: 2}\n  EL", "gpus: .nan}\n  EL", "m.yaml: options.L.gpus: must be a valid integer, not nan"),
        (
            "gpus: 2}\n  EL",
            "gpus: 2, tensor_parallel: [2, 4]}\n  EL",
            "m.yaml: options.L: gives both gpus and tensor_parallel: remove one of them",
        ),
        (
            "gpus: 2}\n  EL",
            "tensor_parallel: [2, 2]}\n  EL",
            "m.yaml: options.L.tensor_parallel: 2 is given twice: remove one of them",
        ),
        ("  EL: {", "  E: {", "m.yaml: line 11: 'E' is given twice"),
        ("components: [llm]", "components: [llm, llm]", "m.yaml: options.L.components: 'llm' is given twice"),
        (
            "components: [llm]",
            "components: [talker]",
            "m.yaml: options.L.components: 'talker' is not a component of the m",
        ),
        ("encoder: {}", "encoder: {after: [llm]}", "m.yaml: components: encoder, llm depend on each other in a cycle"),
        ("encoder: {}", "encoder: {after: [eye]}", "m.yaml: components.encoder.after: 'eye' is not a component"),
        ("[E, L]", "[E, M]", "m.yaml: paths.1: 'M' is not an option of the model"),
        ("[E, L]", "[EL]", "m.yaml: paths: 'EL' is given twice"),
        ("[E, L]", "[]", "m.yaml: paths.1: has no options"),
        ("name: tiny", "name: {tiny", "m.yaml: line 5: invalid YAML: expected ',' or '}', but got ':'"),
    ],
)
def test_an_error_names_the_field_and_the_reason(before: str, after: str, error: str) -> None:
    assert before in GOOD
    with pytest.raises(InvalidInputError) as refused:
        ModelDocument.parse(GOOD.replace(before, after, 1), source="m.yaml")
    assert str(refused.value).startswith(error)
    assert "\n" not in str(refused.value)


def test_a_document_is_the_same_in_yaml_and_json(tmp_path: Path) -> None:
    document = ModelDocument.parse(GOOD, source="m.yaml")
    document.write(tmp_path / "m.json")
    assert ModelDocument.read(tmp_path / "m.json") == document
    assert document.graph().edges == {("E", "L"), ("E", "EL")}


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ('{"name": 1, "name": 2}', "m.json: name: is given twice"),
        ('{"name": NaN}', "m.json: document: NaN is not a number"),
        ("{", "m.json: line 1: invalid JSON"),
        (f'{{"name": {"9" * 5000}}}', "m.json: document: has a value that cannot be read: a number has 5000"),
        ("[]", "m.json: document: must be a mapping of fields, not []"),
    ],
)
def test_json_is_parsed_as_strictly_as_yaml(text: str, error: str) -> None:
    with pytest.raises(InvalidInputError) as refused:
        ModelDocument.parse(text, source="m.json")
    assert str(refused.value).startswith(error)


LEVELS = "\n".join(f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 10)}]" for level in range(1, 9))


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (f"a0: &a0 [x]\n{LEVELS}", "m.yaml: document: its aliases expand to more than 100,000 values"),
        ("a: &a [*a]", "m.yaml: document: its aliases expand to more than 100,000 values"),
        ("[" * 2000, "m.yaml: document: is nested too deeply"),
        ("? [a, b]\n: 1", "m.yaml: line 1: a field's name must be text"),
        ("name: 2026-13-01", "m.yaml: document: has a value that cannot be read: month must be in 1..12"),
        ("name: " + "9" * 5000, "m.yaml: document: has a value that cannot be read: a number has 5000 characters"),
        (f"name: {':'.join('1' * 5000)}", "m.yaml: document: has a value that cannot be read: a number has 9999 ch"),
    ],
    ids=["aliases", "cycle", "nested", "key", "date", "number", "base 60"],
)
def test_a_file_that_would_crash_or_hang_is_rejected(text: str, error: str) -> None:
    with pytest.raises(InvalidInputError) as refused:
        ModelDocument.parse(text, source="m.yaml")
    assert str(refused.value).startswith(error)


def test_aliases_repeat_values() -> None:
    text = GOOD.replace("{components: [encoder]}", "{components: &e [encoder]}") + "description: tiny\n"
    assert "&e" in text
    repeated = text.replace(
        "components: [encoder, llm], gpus: 2}", "components: [encoder, llm], gpus: 2}\n  E2: {components: *e}"
    )
    assert ModelDocument.parse(repeated, "m.yaml").options["E2"].components == ("encoder",)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match=r"none\.yaml: cannot be read: No such file"):
        ModelDocument.read(tmp_path / "none.yaml")
    (tmp_path / "image.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InvalidInputError, match=r"image\.yaml: is not UTF-8 text"):
        ModelDocument.read(tmp_path / "image.yaml")
