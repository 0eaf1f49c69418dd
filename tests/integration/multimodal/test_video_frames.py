"""The frames of videos are those of vLLM's loaders, which decode with OpenCV."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any, Literal

import numpy as np
import pytest

from cornserve_executors.media.video_decoding import decode_video
from cornserve_executors.media.video_sampling import FrameSampling, VideoSource
from cornserve_tasklib.media_options import MediaOptions
from tests.video import AVI_CODECS, avi_file, rotated, transparent_gif, video_file, video_from_file

Backend = Literal["opencv", "qwen2_vl", "qwen3_vl"]
BACKENDS: tuple[Backend, ...] = ("opencv", "qwen2_vl", "qwen3_vl")

IRREGULAR = [0, 40, 90, 400, 450, 1000, 1020, 1500, 1550, 1900, 2500, 2540, 2600, 3000, 3010, 3300, 3900, 4000]
BT709 = {"colorspace": 1, "color_primaries": 1, "color_trc": 1}


FILES: dict[str, Callable[[], bytes]] = {
    "MP4": video_file,
    "MOV": lambda: video_file("MOV", width=98, height=66, sound="aac"),
    "MKV": lambda: video_file("MKV", "hevc", codec_context={"options": {"x265-params": "log-level=none:bframes=0"}}),
    "VP8": lambda: video_file("WEBM", "libvpx", width=95, height=63, sound="libopus"),
    "VP9": lambda: video_file("WEBM", "libvpx-vp9", pixel_format="yuv444p"),
    "MPEG-4": lambda: video_file("MP4", "mpeg4"),
    "AVI": lambda: video_file("AVI", "mpeg4", sound="mp3"),
    "H.264 in AVI": lambda: video_file("AVI", codec_context={"options": {"x264-params": "bframes=0"}}),
    "Motion JPEG in AVI": lambda: video_file("AVI", "mjpeg", pixel_format="yuvj420p"),
    **{codec: partial(avi_file, codec) for codec in AVI_CODECS},
    "GIF": lambda: video_file("GIF", "gif", pixel_format="rgb8"),
    "fragmented": lambda: video_file(options={"movflags": "frag_keyframe+empty_moov"}),
    "variable frame rate": lambda: video_file(times=IRREGULAR, count=len(IRREGULAR)),
    "variable frame rate in WebM": lambda: video_file("WEBM", "libvpx", times=IRREGULAR, count=len(IRREGULAR)),
    "BT.709": lambda: video_file(codec_context=BT709 | {"color_range": 1}),
    "full range": lambda: video_file(codec_context=BT709 | {"color_range": 2}),
    "rotated by 90": lambda: rotated(video_file(), 90),
    "rotated by 180": lambda: rotated(video_file(), 180),
    "rotated by 270": lambda: rotated(video_file(), 270),
    "transparent": lambda: transparent_gif([100, 20, 300, 10, 50, 0]),
}
FORMATS = {
    **dict.fromkeys(AVI_CODECS, "AVI"),
    "H.264 in AVI": "AVI",
    "Motion JPEG in AVI": "AVI",
    "VP8": "WEBM",
    "VP9": "WEBM",
    "variable frame rate in WebM": "WEBM",
    "transparent": "GIF",
}


def loader_of(backend: Backend) -> Any:
    """Returns vLLM's loader of videos."""
    from vllm.multimodal.video import VIDEO_LOADER_REGISTRY

    return VIDEO_LOADER_REGISTRY.load(backend)


def vllm_indices(
    loader: Any, source: tuple[int, float, float], target: tuple[float, float, int], **limits: int
) -> list[int]:
    """Returns the frames that a loader samples, some of them repeatedly."""
    from vllm.multimodal.video_decoders import VideoSourceMetadata, VideoTargetMetadata

    indices: list[int] = loader.compute_frames_index_to_sample(
        VideoSourceMetadata(*source), VideoTargetMetadata(*target), **limits
    )
    return indices


@pytest.mark.parametrize("name", FILES)
def test_frames_and_metadata_are_those_of_vllm(name: str) -> None:
    data = FILES[name]()
    for backend in BACKENDS:
        frames, metadata = loader_of(backend).load_bytes(data, num_frames=7)

        video = video_from_file(data, FORMATS.get(name, name if name in ("MOV", "MKV", "AVI", "GIF") else "MP4"))
        decoded = decode_video(video, FrameSampling(backend, num_frames=7))

        assert decoded.metadata == metadata | {"video_backend": "pyav"}
        np.testing.assert_array_equal(decoded.frames, frames)


def test_options_choose_the_frames_of_vllm() -> None:
    sources = [(9, 3.0), (200, 10.0), (5000, 25.0), (30, 0.5), (2, 1.0)]
    fps = [None, 0.3, 1.0, 7.5, 30.0]
    limits: dict[Backend, list[dict[str, int]]] = {
        "opencv": [{}, {"num_frames": 5}, {"num_frames": 700}],
        "qwen2_vl": [{}, {"max_frames": 8}, {"min_frames": 10}, {"min_frames": 3, "max_frames": 5}],
    }
    limits["qwen3_vl"] = limits["qwen2_vl"]
    for backend, (count, rate), wanted in product(BACKENDS, sources, fps):
        loader = loader_of(backend)
        for limit in limits[backend]:
            options = MediaOptions.model_validate(limit | ({} if wanted is None else {"fps": wanted}))
            target = limit.get("num_frames", 32), wanted or (-1 if backend == "opencv" else 2), 300
            expected = vllm_indices(loader, (count, rate, count / rate), target, **limit)

            found = FrameSampling(backend).with_options(options).frame_indices(VideoSource(count, rate, count / rate))

            assert found == sorted({*expected}), (backend, count, rate, options)


@pytest.mark.families
def test_wide_gamuts_and_hdr_are_converted_like_vllm() -> None:
    """The conversion takes vLLM and this executor seconds each."""
    # With B-frames, x265 does not set the decoding times of so few frames.
    options = {"x265-params": "log-level=none:bframes=0"}
    colors = {"colorspace": 9, "color_primaries": 9, "color_trc": 18, "options": options}
    data = video_file("MP4", "hevc", 2, pixel_format="yuv420p10le", codec_context=colors)
    expected, _ = loader_of("opencv").load_bytes(data, num_frames=2)

    decoded = decode_video(video_from_file(data), FrameSampling(num_frames=2))

    np.testing.assert_array_equal(decoded.frames, expected)


def test_one_frame_is_sampled_where_vllm_fails() -> None:
    """vLLM divides by zero, because it wants pairs of frames. The processor repeats a single frame."""
    loader = loader_of("qwen2_vl")

    assert FrameSampling("qwen2_vl").frame_indices(VideoSource(1, 10, 0.1)) == [0]
    with pytest.raises(ZeroDivisionError):
        vllm_indices(loader, (1, 10, 0.1), (-1, 2, 300))


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_same_frames_are_sampled_as_by_vllm(backend: Backend) -> None:
    loader = loader_of(backend)
    options: list[dict[str, Any]] = [
        {"num_frames": count, "fps": fps} for count, fps in product([-1, 1, 7, 32], [-1, 0.5, 1, 2, 60])
    ]
    for total, source_fps in product([2, 3, 5, 32, 301, 451, 17_982], [0.5, 8.33, 24.0, 30_000 / 1001, 60.0]):
        source = total, source_fps, total / source_fps
        for option in options if backend == "opencv" else [{"fps": 1.0}, {"fps": 2.0}, {"fps": 4.0}, {"fps": 50.0}]:
            expected = vllm_indices(loader, source, (option.get("num_frames", -1), option["fps"], 300))

            found = FrameSampling(backend, **option).frame_indices(VideoSource(*source))

            assert found == sorted(set(expected)), (source, option)
