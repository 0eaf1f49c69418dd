"""Fits a step model of a language model to the latency curve of a profile.

A profile holds the seconds L(n) of requests with n of them in flight, each with p tokens of prompt and o of output.
Such a request takes part in o steps, in which each of the n requests is computed once:
L(n) = o * fixed + n * (p + o - 1) * per_token. The curve does not tell tokens from sequences and context: everything
that grows with the batch counts as time of tokens, so that the fit holds for requests of about these sizes.
"""

from __future__ import annotations

import numpy as np
from pydantic import ValidationError

from cornserve_planner.conversion.size_costs import non_negative_least_squares
from cornserve_planner.errors import InvalidInputError, require_positive
from cornserve_planner.files.document import input_error_from
from cornserve_planner.profiles.profile import BatchLatency, ModelProfile, StepSeconds


def fit_option(profile: ModelProfile, option: str, prompt: int, output: int, cache_tokens: int) -> StepSeconds:
    """Returns the step model of an option, from its first curve of complete requests.

    Args:
        prompt, output: tokens of the measured requests.
        cache_tokens: tokens whose keys and values a replica holds.

    Raises `InvalidInputError` if the profile has no such curve, or if it does not determine the model.
    """
    for name, value in (("--prompt", prompt), ("--output", output), ("--cache-tokens", cache_tokens)):
        require_positive(name, value)
    known = list(dict.fromkeys(entry.option for entry in profile.options))
    if option not in known:
        raise InvalidInputError("--option", f"{option!r} is not in the profile: use one of {', '.join(known)}")
    curves = (curve for entry in profile.for_option(option) for curve in entry.latency if curve.measures == "request")
    curve = next(curves, None)
    if curve is None:
        raise InvalidInputError(f"options.{option}.latency", "has no curve of complete requests: measure it")
    return fit_steps(option, curve, prompt, output, cache_tokens)


def fit_steps(option: str, curve: BatchLatency, prompt: float, output: float, cache_tokens: int) -> StepSeconds:
    """Returns the step model of an option from a curve of complete requests.

    Args:
        prompt, output: mean tokens of the requests.

    Raises `InvalidInputError` if the curve does not determine the model.
    """
    if len(curve.batch) < 2:
        raise InvalidInputError(f"options.{option}.latency", "has one batch size: measure at least two")
    batch, seconds = np.array(curve.batch, dtype=float), np.array(curve.seconds)
    matrix = np.stack([np.full(len(batch), output), batch * (prompt + output - 1)], axis=1)
    fixed, per_token = non_negative_least_squares(matrix / seconds[:, None], np.ones((len(batch), 1)))[:, 0]
    if not fixed:
        raise InvalidInputError(
            f"options.{option}.latency",
            "grows as fast as the batch, so that steps have no fixed time: measure smaller batches",
        )
    errors = abs(matrix @ np.array([fixed, per_token]) / seconds - 1)
    source = f"fitted to {curve.source}, {prompt:.4g} tokens in and {output:.4g} out, largest error {errors.max():.1%}"
    try:
        return StepSeconds(
            fixed=float(fixed), per_token=float(per_token), cache_tokens=cache_tokens, tag="predicted", source=source
        )
    except ValidationError as error:
        raise input_error_from(error, "a step model") from error
