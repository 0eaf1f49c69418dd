"""Changed media files are decoded or rejected: they crash neither the gateway's checks nor the decoders."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import Any

import PIL.Image
import pytest

from cornserve.gateway.media.errors import MediaError
from cornserve.gateway.media.inspection import RULES, inspect_sound
from cornserve.limits import Limits
from cornserve.task import Blob
from cornserve_executors.media.audio_decoding import decode_audio
from cornserve_executors.media.errors import UnusableMediaError
from cornserve_executors.media.image_decoding import decode_image, image_size
from cornserve_executors.media.video_decoding import decode_video
from cornserve_executors.media.video_sampling import FrameSampling
from cornserve_tasklib.media import Audio, Image, Media, Video
from tests.audio import as_audio, audio_file, audio_from_file, sound
from tests.chaos.form import by_form, seed
from tests.images import as_image, noise
from tests.video import AVI_CODECS, avi_file, video_file, video_from_file

PICTURE = noise(0, 30, 20)
EXIF = PIL.Image.Exif()
EXIF[0x0112] = 6  # the orientation

MEDIA: dict[str, Media] = {
    "PNG": as_image(PICTURE),
    "PNG, palette": as_image(PICTURE.convert("P"), transparency=3),
    "JPEG": as_image(PICTURE, "JPEG"),
    "JPEG, progressive": as_image(PICTURE, "JPEG", progressive=True, exif=EXIF),
    "WEBP": as_image(PICTURE, "WEBP"),
    "WEBP, lossless": as_image(PICTURE.convert("RGBA"), "WEBP", lossless=True),
    "GIF": as_image(PICTURE.convert("P"), "GIF"),
    **{format: as_image(PICTURE, format) for format in ("BMP", "TIFF", "JPEG2000")},
    "TIFF, compressed": as_image(PICTURE.convert("CMYK"), "TIFF", compression="tiff_lzw"),
    "GIF, animated": as_image(PICTURE.convert("P"), "GIF", save_all=True, append_images=[noise(1, 30, 20)]),
    **{
        f"{format}, {channels} channels": as_audio(sound(1, 0.3, rate, channels), rate, format)
        for format in ("WAV", "AIFF", "MP3", "AAC", "FLAC", "OGG", "M4A", "WEBM")
        for rate, channels in ((16_000, 1), (48_000, 2))
    },
    "ADPCM": as_audio(sound(1, 0.3), subtype="IMA_ADPCM"),
    **{
        name: audio_from_file(audio_file(sound(1, 0.3), format=name), "WAV", 16_000, 1, 0.6)
        for name in ("W64", "WAV-MP3")
    },
    "ADPCM in AIFF": as_audio(sound(1, 0.3), format="AIFF", subtype="IMA_ADPCM"),
    **{codec: video_from_file(avi_file(codec), "AVI", width=128, height=96) for codec in AVI_CODECS},
    **{
        f"{format} with {sound}": video_from_file(video_file(format, codec, 6, sound=sound), format, frames=6)
        for format, codec, sound in (
            ("AVI", "mpeg4", "mp3"),
            ("MP4", "h264", "aac"),
            ("MKV", "h264", "aac"),
            ("WEBM", "libvpx", "libopus"),
        )
    },
}


@pytest.mark.filterwarnings("ignore:.*EXIF", "ignore:Truncated File Read", "ignore::PIL.Image.DecompressionBombWarning")
@pytest.mark.chaos
@pytest.mark.parametrize("name", MEDIA)
def test_a_changed_file_is_decoded_or_rejected(name: str) -> None:
    original, random = MEDIA[name], Random(f"{name} {seed()}")
    assert original.data is not None
    decode(original)
    for _ in range(by_form(short=50, full=2000)):
        data = changed(original.data.data, random)
        with suppress(MediaError, UnusableMediaError):
            decode(inspect(original, data))
        with suppress(UnusableMediaError):  # Executors check files that a gateway has accepted, too.
            decode(original.model_copy(update={"data": Blob(data)}))


def changed(data: bytes, random: Random) -> bytes:
    """Returns the file with a few bytes, or a range of bytes, replaced, removed or repeated."""
    file = bytearray(data)
    start = random.choice((random.randrange(min(200, len(file))), random.randrange(len(file))))
    end = start + random.randrange(1, 40)
    changes: list[Callable[[], Any]] = [
        lambda: file.__setitem__(start, random.randrange(256)),
        lambda: file.__setitem__(start, file[start] ^ 1 << random.randrange(8)),
        lambda: file.__setitem__(slice(start, end), random.randbytes(end - start)),
        lambda: file.__setitem__(slice(start, end), b"\xff" * random.randrange(40)),
        lambda: file.__delitem__(slice(start, end)),
        lambda: file.__delitem__(slice(start, None)),
        lambda: file.__setitem__(slice(start, start), file[start:end] * random.randrange(1, 50)),
    ]
    for _ in range(random.randrange(1, 4)):
        if start < len(file):
            random.choice(changes)()
    return bytes(file)


def inspect(original: Media, data: bytes) -> Media:
    """Returns the medium that a gateway makes of the file. Raises `MediaError`."""
    header = RULES[original.modality].read_header(data, Limits())
    return header.to_media(Blob(data), original.digest, original.where)


def decode(media: Media) -> None:
    """Plans and decodes a medium as executors do. Raises `UnusableMediaError`."""
    match media:
        case Image():
            image_size(media)
            decode_image(media)
        case Audio():
            decode_audio(media)
        case Video():
            decode_video(media, FrameSampling(num_frames=3))
            with suppress(MediaError):  # A gateway rejects the request.
                decode(asyncio.run(inspect_sound(media, Limits())))
