"""The choice of cells and paths: shares, draws and errors."""

from __future__ import annotations

from collections import Counter

import pytest

from cornserve_policies.path_table import PathTable, RoutableCell
from cornserve_policies.replayable_random import ReplayableRandom
from tests.unit.policies.chi_square import chi_square_limit

TYPES = {"image": {"encoder", "llm"}, "text": {"llm"}}


def cell(name: str, rate: float, **probabilities: list[float]) -> RoutableCell:
    return RoutableCell(name, rate, probabilities)


CELLS = [cell("4-0", 3.0, text=[0.5, 0.5], image=[0, 1]), cell("4-1", 3.0, text=[1, 0]), cell("1-0", 1.0, image=[1, 0])]


@pytest.fixture
def table() -> PathTable:
    return PathTable(TYPES, "text", CELLS)


def test_a_type_is_an_exact_set_of_components(table: PathTable) -> None:
    assert table.type_of({"llm", "encoder"}) == "image"
    assert table.type_of(["llm"]) == "text"
    assert table.type_of({"encoder"}) is None


def test_draws_follow_the_planned_shares(table: PathTable) -> None:
    planned = dict(table.shares())
    assert planned == pytest.approx(
        {
            ("image", "4-0", 1): 3 / 4,
            ("image", "1-0", 0): 1 / 4,
            ("text", "4-0", 0): 1 / 4,
            ("text", "4-0", 1): 1 / 4,
            ("text", "4-1", 0): 1 / 2,
        }
    )
    for name in TYPES:
        expected = {key: 20_000 * share for key, share in planned.items() if key[0] == name}
        observed = Counter[tuple[str, str, int]]()
        for number in range(20_000):
            observed[table.choose(name, ReplayableRandom(f"request {number}"))] += 1

        assert observed.keys() == expected.keys()
        distance = sum((observed[key] - mean) ** 2 / mean for key, mean in expected.items())
        assert distance < chi_square_limit(len(expected) - 1)


def test_requests_of_unknown_types_get_the_default_type(table: PathTable) -> None:
    chosen = table.choose(None, ReplayableRandom("request"))

    assert chosen.request_type == "text"
    assert chosen.cell in ("4-0", "4-1")


def test_a_choice_takes_two_draws_even_if_there_is_one_cell_and_one_path() -> None:
    random = ReplayableRandom("request")
    PathTable({"text": {"llm"}}, "text", [cell("", 1, text=[1.0])]).choose("text", random)

    assert random.index == 2


def test_a_type_without_a_cell_is_unknown() -> None:
    table = PathTable(TYPES, "text", [cell("", 1, text=[1.0])])

    assert table.type_of(TYPES["image"]) is None


@pytest.mark.parametrize(
    ("default_type", "message"),
    [
        ("video", "the default type 'video' is unknown: use one of image, text"),
        ("image", "no cell serves the default type 'image': add it to a cell's probabilities"),
    ],
)
def test_the_default_type_must_be_served(default_type: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PathTable(TYPES, default_type, [cell("", 1, text=[1.0])])
