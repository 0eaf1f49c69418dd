"""Qwen-Image's defaults and limits of the fields of a request."""

from cornserve_tasklib.image_generation import ImageRequest

MIN_STEPS = 2
"""The noise schedule is undefined for a single step."""


DEFAULT_STEPS = 50
"""The default number of denoising steps."""


def guidance_of(request: ImageRequest) -> float:
    """Returns the strength of classifier-free guidance."""
    return 4.0 if request.true_cfg_scale is None else request.true_cfg_scale
