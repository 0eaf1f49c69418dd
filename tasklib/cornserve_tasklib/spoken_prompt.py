"""Prompts and tokens of thinkers, as the talkers of Omni models read them."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

Grid = tuple[int, int, int]
"""The patches of an image or a video: time, height, width."""


class SpokenPrompt(BaseModel):
    """The tokens of a chat, and the sizes of its media, in order."""

    model_config = ConfigDict(frozen=True)

    tokens: list[int]
    """All tokens of the prompt. Empty in the place of a thinker: the talker then reads an empty message."""
    image_grids: list[Grid] = []
    video_grids: list[Grid] = []
    seconds_per_grid: list[float] = []
    """The duration of a step of the time in each video."""
    audio_frames: list[int] = []
    """The frames of the spectrogram of each audio, including the sound of videos."""
    has_sound: bool = False
    """Whether the audio is the sound of the videos."""


class SpokenTokens(BaseModel):
    """Tokens of a response, whose hidden states a talker reads."""

    model_config = ConfigDict(frozen=True)

    tokens: list[int]
