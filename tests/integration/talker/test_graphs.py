"""Functions of tensors with fixed inputs. On a CPU, they run without CUDA graphs, but with the same inputs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    import torch


def graphed_function(function: Any) -> Any:
    from cornserve_executors.talker.graphs import GraphedFunction

    return GraphedFunction(function)


def sum_and_product(left: torch.Tensor, right: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return left + right, left * right


def test_results_are_those_of_the_function_for_all_values_and_shapes() -> None:
    import torch

    graphed = graphed_function(sum_and_product)

    for length in (2, 3, 2):
        left, right = torch.rand(length), torch.rand(length)
        for found, expected in zip(graphed(left, right), sum_and_product(left, right), strict=True):
            assert torch.equal(found, expected)


def test_inputs_keep_their_dtypes() -> None:
    import torch

    graphed = graphed_function(lambda tensor: (2 * tensor,))

    assert graphed(torch.tensor([1]))[0].tolist() == [2]
    assert graphed(torch.tensor([0.75]))[0].tolist() == [1.5]


def test_a_result_keeps_its_value_when_the_function_runs_again() -> None:
    import torch

    graphed = graphed_function(lambda tensor: (tensor,))
    given = torch.ones(2)

    (first,) = graphed(given)
    graphed(torch.zeros(2))

    assert first.tolist() == given.tolist() == [1, 1]


def test_the_inputs_of_a_shape_stay_at_one_address() -> None:
    import torch

    addresses = []

    def record(tensor: torch.Tensor) -> tuple[torch.Tensor]:
        addresses.append(tensor.data_ptr())
        return (tensor,)

    graphed = graphed_function(record)
    given = [torch.rand(size) for size in (2, 3, 2, 3)]

    for tensor in given:
        graphed(tensor)

    assert addresses[:2] == addresses[2:]
    assert not set(addresses) & {tensor.data_ptr() for tensor in given}


def test_the_error_of_a_function_does_not_change_later_results() -> None:
    import torch

    def double(tensor: torch.Tensor) -> tuple[torch.Tensor]:
        if tensor.sum() < 0:
            raise ValueError("negative")
        return (2 * tensor,)

    graphed = graphed_function(double)

    with pytest.raises(ValueError, match="negative"):
        graphed(torch.tensor([-1.0]))
    assert graphed(torch.tensor([3.0]))[0].tolist() == [6]
