"""Faults in the product, and whether a command finds them."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import pytest

from scripts.inject_faults import draw, main
from scripts.mutations import mutations


def function(line: str) -> str:
    return f"def f(a, b):\n    {line}\n"


@pytest.mark.parametrize(
    ("line", "mutants"),
    [
        ("assert a < b", ["assert (a <= b)"]),
        ("return a is b", ["return", "return (a is not b)"]),
        ("if a: b()", ["if (not a): b()", "if a: pass"]),
        ("while a and b: break", ["while (a or b): break", "while (not (a and b)): break", "while a and b: pass"]),
        ("c = 1", ["c = (2)"]),
        ("c = False", ["c = (True)"]),
        ("c = f(a, b)", ["c = (f(b, a))"]),
        ("c = a - b", ["c = (a + b)"]),
        ("a.b = 'ü', b < a", ["a.b = 'ü', (b <= a)", "pass"]),
        ("a += b", ["pass"]),
        ("raise a", ["pass"]),
        ("b(\n        a\n    )", ["pass"]),
        ("c: dict[0, 1]", []),
        ("log.info('text', a, b)", []),
        ("c = min(a, b)", []),
        ("c = f'{a < b}'", []),
        ("return", []),
    ],
)
def test_a_mutation_changes_one_expression_or_statement(line: str, mutants: list[str]) -> None:
    assert sorted(mutation.source for mutation in mutations(function(line))) == sorted(map(function, mutants))


def test_code_outside_of_functions_is_not_changed() -> None:
    assert mutations("LIMIT = 1\n\nclass C:\n    size: int = 2\n\n    def f(self, a=3): ...\n") == []


@pytest.fixture
def product(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file with a line that its test checks, and one that it does not check."""
    monkeypatch.setattr("scripts.inject_faults.DATA", tmp_path / "missing")
    monkeypatch.setattr("scripts.inject_faults.LOGS", tmp_path / "logs")
    file = tmp_path / "product.py"
    file.write_text("def checked():\n    return 1 + 1\n\n\ndef unchecked(a):\n    a.b = 1\n")
    return file


def test_faults_are_found_or_survive_and_the_file_is_restored(
    product: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = product.read_text()
    test = "import product; assert product.checked() == 2"

    command = ["env", f"PYTHONPATH={product.parent}", sys.executable, "-c", test]
    status = main(["--count=2", f"--paths={product}", "--", *command])

    output = capsys.readouterr().out
    assert status == 1
    assert f"found    {product}:2: " in output
    assert f"SURVIVED {product}:6: " in output
    assert "1 of 2 faults were found" in output
    assert product.read_text() == source


def test_a_seed_repeats_a_draw(product: Path) -> None:
    assert draw([product], 1, random.Random(5), None) == draw([product], 1, random.Random(5), None)


def test_only_lines_that_tests_reach_are_changed(product: Path) -> None:
    (fault,) = draw([product], 5, random.Random(1), {product: {5, 6}})

    assert fault.mutation.line == 6
