"""One speech in a vocoder whose talker runs in another executor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from cornserve_executors.talker.vocoder import Vocoder
from cornserve_tasklib.talker import SpokenCodesInfo


@dataclass(frozen=True, slots=True)
class CodesPart:
    """A tensor of `SpokenCodes.codes`, and its metadata."""

    info: SpokenCodesInfo
    codes: torch.Tensor


class DecodedSpeech:
    """A speech between two chunks. Its chunks do not depend on the parts in which its codes arrive."""

    def __init__(self, vocoder: Vocoder[Any], info: SpokenCodesInfo, device: str) -> None:
        self.info = info
        """Describes the newest codes."""
        self._vocoder = vocoder
        self._state = vocoder.start(info.voice, info.seed)
        self._device = device
        self._waiting: torch.Tensor | None = None
        """Codes that have not been decoded, of the shape [groups, frames]. None without any."""
        self._decoded = 0
        """The number of frames that have been decoded."""
        self.is_decoded = False
        """Whether all samples have been decoded."""

    @property
    def has_all_codes(self) -> bool:
        return self.info.text is not None

    @property
    def is_ready(self) -> bool:
        """Whether the next chunk can be decoded."""
        if self.has_all_codes:
            return not self.is_decoded
        return self._waiting is not None and self._waiting.shape[1] >= self._chunk_frames

    def add(self, part: CodesPart) -> None:
        """Adds the next codes, or the end of the speech."""
        self.info = part.info
        if not self.has_all_codes:
            self._waiting = part.codes if self._waiting is None else torch.cat([self._waiting, part.codes], 1)

    def decode(self) -> torch.Tensor:
        """Returns the samples of the next chunk, of the shape [samples]. It may be empty. Runs on the device."""
        if self._waiting is None:
            self.is_decoded = True
            return self._vocoder.finish(self._state).cpu()
        size = self._chunk_frames
        frames, rest = self._waiting[:, :size], self._waiting[:, size:]
        self._waiting = rest if rest.shape[1] else None
        self._decoded += frames.shape[1]
        return self._vocoder.decode(self._state, frames.to(self._device)).cpu()

    @property
    def _chunk_frames(self) -> int:
        return self._vocoder.chunk_frames(self._decoded)
