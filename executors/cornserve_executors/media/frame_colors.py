"""Converts decoded frames to RGB like vLLM, which uses OpenCV.

FFmpeg converts between the primaries and transfer functions of two frames. OpenCV leaves those of its frames open, so
FFmpeg derives them from the video: it keeps those of usual videos, and converts wide gamuts and HDR to BT.709. PyAV
converts only on request.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from av.video.frame import VideoFrame
from av.video.reformatter import ColorPrimaries, ColorTrc, Interpolation, VideoReformatter

_NARROW = frozenset(
    {
        ColorPrimaries.BT709,
        ColorPrimaries.UNSPECIFIED,
        ColorPrimaries.BT470M,
        ColorPrimaries.BT470BG,
        ColorPrimaries.SMPTE170M,
        7,  # SMPTE 240M
    }
)
"""The primaries that are similar to BT.709, and are kept."""
_HDR = frozenset({ColorTrc.SMPTE2084, ColorTrc.ARIB_STD_B67})
"""The transfer functions that are converted."""


class RgbConverter:
    """Converts the frames of one video. The first wide gamut or HDR frame takes seconds."""

    def __init__(self) -> None:
        self._reformatter = VideoReformatter()

    def convert(self, frame: VideoFrame) -> npt.NDArray[np.uint8]:
        """Returns the pixels, of the shape [height, width, 3]."""
        primaries, transfer = self._targets(int(frame.color_primaries), int(frame.color_trc))
        rgb = self._reformatter.reformat(
            frame,
            format="rgb24",
            interpolation=Interpolation.BICUBIC,
            dst_color_primaries=primaries,
            dst_color_trc=transfer,
            threads=1,
        )
        pixels: npt.NDArray[np.uint8] = rgb.to_ndarray()
        return pixels

    def _targets(self, primaries: int, transfer: int) -> tuple[int | None, int | None]:
        """Returns the primaries and the transfer function to convert to, or None to keep both."""
        if primaries in _NARROW and transfer not in _HDR:
            return None, None
        is_kept = primaries in _NARROW and primaries != ColorPrimaries.UNSPECIFIED
        is_converted = transfer in _HDR or transfer == ColorTrc.UNSPECIFIED
        return primaries if is_kept else ColorPrimaries.BT709, ColorTrc.BT709 if is_converted else transfer
