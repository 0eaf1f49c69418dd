"""The error for a medium that cannot be used."""

from __future__ import annotations

from typing import Literal

from cornserve_tasklib.media import Modality

Problem = Literal[
    "invalid_url", "invalid_base64", "failed_to_download", "unsupported", "invalid", "too_large", "too_small"
]

_CODES: dict[Problem, str] = {
    "invalid_url": "invalid_{}_url",
    "invalid_base64": "invalid_base64_{}",
    "failed_to_download": "failed_to_download_{}",
    "unsupported": "unsupported_{}",
    "invalid": "invalid_{}",
    "too_large": "{}_too_large",
    "too_small": "{}_too_small",
}
"""The error codes by problem, with the modality in place of {}: those of images are OpenAI's."""


class MediaError(Exception):
    """A medium of a request is not usable. The client receives the path of the medium's part and the message."""

    def __init__(self, problem: Problem, message: str) -> None:
        super().__init__(message)
        self.problem = problem
        self.message = message

    def code(self, modality: Modality) -> str:
        """Returns the error code, such as `invalid_image_url`."""
        return _CODES[self.problem].format(modality)


class NoSoundError(MediaError):
    """A file has no sound."""
