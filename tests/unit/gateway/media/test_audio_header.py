"""The headers of audio files are read like their decoder does, and invalid files are rejected."""

from __future__ import annotations

import io
import struct
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from random import Random

import av
import numpy as np
import pytest
import soundfile

from cornserve.gateway.media.audio_header import read_audio_header
from cornserve.gateway.media.errors import MediaError
from cornserve.gateway.media.formats import isobmff, matroska
from cornserve.gateway.media.inspection import KIB, RULES, MediaHeader
from cornserve.limits import Limits
from tests.audio import Samples, audio_file, id3_tag, sound
from tests.video import video_file

MAX_SECONDS = 600
FORMATS = ["WAV", "W64", "WAV-MP3", "MP3", "FLAC", "OGG"]
NOISE = sound(0, 0.5)
WAV = audio_file(NOISE)
MP3 = audio_file(NOISE, format="MP3")
FLAC = audio_file(NOISE, format="FLAC")
M4A = audio_file(NOISE, format="M4A")
WEBM = audio_file(sound(0, 0.5, 48_000), 48_000, "WEBM")
AAC = audio_file(NOISE, format="AAC")
AIFF = audio_file(NOISE, format="AIFF")
W64 = audio_file(NOISE, format="W64")
WAV_MP3 = audio_file(NOISE, format="WAV-MP3")
AVI = video_file("AVI", "mpeg4", sound="mp3")
CONTAINERS = {
    "M4A": M4A,
    "stereo M4A": audio_file(sound(0, 2, 44_100, 2), 44_100, "M4A"),
    "fragmented M4A": audio_file(NOISE, format="M4A", movflags="frag_keyframe+empty_moov"),
    "WebM": WEBM,
    "stereo WebM": audio_file(sound(0, 2, 48_000, 2), 48_000, "WEBM"),
    "AAC": AAC,
    "stereo AAC": audio_file(sound(0, 2, 44_100, 2), 44_100, "AAC"),
    "recording of a browser": audio_file(sound(0, 0.5, 48_000), 48_000, "WEBM", live="1"),
}
COMPRESSED = {
    "MP3": MP3,
    "stereo MP3": audio_file(sound(0, 0.5, 44_100, 2), 44_100, "MP3"),
    "Opus": audio_file(NOISE, format="OGG"),
    "Vorbis": audio_file(NOISE, format="OGG", subtype="VORBIS"),
    "Opus in several pages": audio_file(sound(0, 4, channels=2), format="OGG"),
}


def ogg_page(flags: int, position: int, serial: int) -> bytes:
    """Returns a page without packets."""
    return struct.pack("<4sBBqIIIB", b"OggS", 0, flags, position, serial, 99, 0, 0)


def ogg_serial(data: bytes) -> int:
    serial: int = struct.unpack_from("<I", data, 14)[0]
    return serial


def with_title(format: str, **options: str) -> bytes:
    """Returns a file whose tags contain a title."""
    with io.BytesIO() as data:
        with soundfile.SoundFile(data, "w", 16_000, 1, format=format, **options) as file:
            file.title = "a title"
            file.write(NOISE)
        return data.getvalue()


def replaced(data: bytes, offset: int, content: bytes) -> bytes:
    return data[:offset] + content + data[offset + len(content) :]


@pytest.mark.parametrize(
    ("format", "sample_rate", "channels", "options"),
    [
        ("WAV", 16_000, 1, {}),
        ("WAV", 8_000, 1, {"subtype": "PCM_U8"}),
        ("WAV", 44_100, 2, {"subtype": "PCM_24"}),
        ("WAVEX", 48_000, 6, {"subtype": "FLOAT"}),
        ("WAV", 8_000, 1, {"subtype": "ULAW"}),
        ("RF64", 8_000, 2, {}),
        ("W64", 8_000, 2, {}),
        ("W64", 44_100, 1, {"subtype": "FLOAT"}),
        ("W64", 44_100, 2, {"subtype": "IMA_ADPCM"}),
        ("WAV", 8_000, 2, {"subtype": "MS_ADPCM"}),
        ("WAV", 44_100, 1, {"subtype": "IMA_ADPCM"}),
        ("WAV", 44_100, 2, {"subtype": "IMA_ADPCM"}),
        ("AIFF", 44_100, 2, {"subtype": "PCM_24"}),
        ("AIFF", 8_000, 1, {"subtype": "ULAW"}),
        ("AIFF", 8_000, 2, {"subtype": "ALAW"}),
        ("AIFF", 44_100, 2, {"endian": "LITTLE"}),
        ("AIFF", 44_100, 1, {"subtype": "DOUBLE"}),
        ("AIFF", 44_100, 2, {"subtype": "IMA_ADPCM"}),
        ("AIFF", 192_000, 6, {"subtype": "FLOAT"}),
        ("FLAC", 22_050, 2, {}),
        ("FLAC", 96_000, 1, {"subtype": "PCM_24"}),
        ("MP3", 44_100, 2, {}),
        ("MP3", 16_000, 1, {}),
        ("OGG", 48_000, 1, {}),
        ("OGG", 44_100, 2, {"subtype": "VORBIS"}),
    ],
)
def test_the_format_and_duration_are_those_of_the_decoder(
    format: str, sample_rate: int, channels: int, options: dict[str, str]
) -> None:
    data = audio_file(sound(1, 1.5, sample_rate, channels), sample_rate, format, **options)
    decoder = soundfile.info(io.BytesIO(data))

    header = read_audio_header(data, MAX_SECONDS)

    assert (header.format, header.sample_rate, header.channels) == (
        {"WAVEX": "WAV", "RF64": "WAV", "W64": "WAV"}.get(format, format),
        decoder.samplerate,
        decoder.channels,
    )
    exact = format != "MP3"  # Its frames include the delay of the encoder.
    assert decoder.duration <= header.seconds <= decoder.duration + (0 if exact else 0.15)


def test_chunks_after_the_samples_of_an_rf64_are_no_samples() -> None:
    data = audio_file(NOISE, format="RF64") + b"LIST" + struct.pack("<I", 5000) + bytes(5000)

    assert read_audio_header(data, MAX_SECONDS) == ("WAV", 16_000, 1, len(NOISE))


def test_samples_that_were_written_to_a_pipe_extend_to_the_end_of_the_file() -> None:
    streamed = replaced(WAV, 40, struct.pack("<I", 0xFFFFFFFF))

    assert read_audio_header(streamed, MAX_SECONDS).seconds == 0.5


@pytest.mark.parametrize("nbytes", [2, 3, 5000])
@pytest.mark.parametrize("subtype", ["PCM_16", "MS_ADPCM", "IMA_ADPCM"])
def test_a_wav_that_is_cut_has_the_samples_that_are_left(subtype: str, nbytes: int) -> None:
    data = audio_file(sound(1, 1.5), subtype=subtype)[:-nbytes]

    header = read_audio_header(data, MAX_SECONDS)

    missing = header.samples - soundfile.info(io.BytesIO(data)).frames
    assert missing == 0 or (subtype == "MS_ADPCM" and 0 < missing < 4096)  # libsndfile drops the last block.


@pytest.mark.parametrize("block", ["", "4608", "1000", "192"])
def test_the_samples_of_a_flac_without_a_duration_are_counted(block: str) -> None:
    samples = sound(0, 7, 44_100, 2)
    data = flac_of_a_pipe(samples, 44_100, block)
    assert replaced(data, 21, bytes([data[21] & 0xF0]) + bytes(4)) == data

    assert read_audio_header(data, MAX_SECONDS) == ("FLAC", 44_100, 2, len(samples))
    assert read_audio_header(data, 2).seconds > 2
    with pytest.raises(MediaError, match="the FLAC has invalid data in place of frames"):
        read_audio_header(data + b"\xff\xf8\0\0" * 20_000, MAX_SECONDS)


def test_the_frames_of_a_flac_without_a_duration_are_limited() -> None:
    """A frame of one sample has 10 bytes, so a file could have millions of them."""
    start = replaced(FLAC[:42], 21, bytes([FLAC[21] & 0xF0]) + bytes(4))
    data = replaced(start, 4, b"\x80") + b"".join(map(flac_frame_of_one_sample, range(4001)))

    assert read_audio_header(data[:-10], 10).samples == 4000
    with pytest.raises(MediaError, match="the audio has more than 4000 packets: convert it to WAV"):
        read_audio_header(data, 10)


def flac_frame_of_one_sample(number: int) -> bytes:
    """Returns the header of a frame with a silent channel, and zeros in place of its content."""
    coded = chr(number).encode()
    header = b"\xff\xf8\x69\x08" + coded + b"\0"
    return (header + bytes([crc8(header)])).ljust(10, b"\0")


def crc8(data: bytes) -> int:
    """Returns the remainder of the division by x^8 + x^2 + x + 1 (RFC 9639, section 9.1.8)."""
    value = int.from_bytes(data) << 8
    for bit in reversed(range(8, value.bit_length())):
        value ^= (0x107 << bit - 8) * (value >> bit & 1)
    return value


def flac_of_a_pipe(samples: Samples, sample_rate: int, block: str) -> bytes:
    """Returns the file that FFmpeg writes without seeking, with frames of `block` samples."""
    chunks: list[bytes] = []
    with av.open(Pipe(chunks), "w", "flac") as output:
        stream = output.add_stream("flac", sample_rate, layout="stereo", options={"frame_size": block} if block else {})
        assert isinstance(stream, av.AudioStream)
        frame = av.AudioFrame.from_ndarray((samples * 32767).astype(np.int16).reshape(1, -1), "s16", "stereo")
        frame.sample_rate = sample_rate
        output.mux(stream.encode(frame))
        output.mux(stream.encode(None))
    return b"".join(chunks)


class Pipe:
    """A file that cannot seek."""

    def __init__(self, chunks: list[bytes]) -> None:
        self.write = chunks.append


@pytest.mark.parametrize("name", COMPRESSED)
def test_a_file_that_is_cut_anywhere_is_truncated(name: str) -> None:
    data, random = COMPRESSED[name], Random(0)
    kept = [4, 27, 40, len(data) // 4, len(data) // 2, *(random.randrange(4, len(data) - 500) for _ in range(200))]

    for nbytes in [*kept, len(data) - 1, len(data) - 3]:
        with pytest.raises(MediaError, match=r"truncated: ") as caught:
            read_audio_header(data[:nbytes], MAX_SECONDS)
        assert caught.value.problem == "invalid"


def test_an_mp3_that_is_cut_between_two_frames_is_truncated() -> None:
    reasons = set()
    for nbytes in range(1000, 2000):
        with pytest.raises(MediaError) as caught:
            read_audio_header(MP3[:nbytes], MAX_SECONDS)
        reasons.add(caught.value.message)

    declared = "truncated: the MP3 has fewer frames than it declares"
    assert reasons == {"truncated: the MP3 ends in a frame", declared}


def test_an_mp3_beyond_the_limit_is_not_called_truncated() -> None:
    assert read_audio_header(audio_file(sound(0, 4), format="MP3"), 2).seconds > 2


@pytest.mark.parametrize(
    "data",
    [
        with_title("MP3"),
        with_title("FLAC"),
        with_title("OGG", subtype="VORBIS"),
        with_title("OGG", subtype="OPUS"),
        MP3 + b"TAG".ljust(128, b"\0"),
        MP3 + bytes(3),
        MP3 + bytes(500),
        replaced(MP3, MP3.index(b"Xing"), bytes(4)),
        COMPRESSED["Vorbis"] + bytes(100),
        AAC + b"TAG".ljust(128, b"\0"),
        *(id3_tag(10) + data for data in (MP3, AAC, FLAC)),
        *(id3_tag(0) + id3_tag(200, footer=True) + data for data in (MP3, AAC, FLAC)),
    ],
)
def test_a_complete_file_with_tags_or_padding_is_accepted(data: bytes) -> None:
    assert 0.5 <= read_audio_header(data, MAX_SECONDS).seconds <= 0.65


@pytest.mark.parametrize("name", ["Opus", "Vorbis"])
@pytest.mark.parametrize("position", [-1, None])
def test_the_last_page_of_a_stream_may_have_no_packets(name: str, position: int | None) -> None:
    data = COMPRESSED[name]
    last = data.rindex(b"OggS")
    seconds = read_audio_header(data, MAX_SECONDS).seconds
    (end,) = struct.unpack_from("<q", data, last + 6)
    unmarked = replaced(data, last + 5, b"\0")
    ending = ogg_page(4, end if position is None else position, ogg_serial(data))

    assert read_audio_header(unmarked + ending, MAX_SECONDS).seconds == seconds
    with pytest.raises(MediaError, match="truncated: the Ogg file has no last page"):
        read_audio_header(unmarked, MAX_SECONDS)


def test_another_stream_may_follow_in_an_ogg_file() -> None:
    first = COMPRESSED["Vorbis"]
    second = ogg_page(4, 800, ogg_serial(first) ^ 1)

    assert read_audio_header(first + second, MAX_SECONDS).seconds == 0.5
    with pytest.raises(MediaError, match="truncated: the Ogg file ends in a page"):
        read_audio_header(first + second[:-1], MAX_SECONDS)


@pytest.mark.parametrize("name", CONTAINERS)
def test_the_header_of_a_container_is_what_ffmpeg_decodes(name: str) -> None:
    data = CONTAINERS[name]

    header = read_audio_header(data, MAX_SECONDS)

    with av.open(io.BytesIO(data), "r") as container:
        stream = container.streams.audio[0]
        samples = sum(frame.samples for frame in container.decode(stream))
    format = next((format for format in ("M4A", "AAC") if format in name), "WEBM")
    assert header[:3] == (format, stream.rate, stream.channels)
    # The last packet of AAC decodes to more samples than the container declares.
    assert -1024 < header.samples - samples < 0.15 * stream.rate


def test_the_packets_of_a_container_are_limited() -> None:
    for data in (M4A, audio_file(sound(0, 8, 48_000), 48_000, "WEBM")):
        with pytest.raises(MediaError, match=r"the audio has more than \d+ packets: convert it to WAV"):
            isobmff.read_audio_header(data, 5) if data is M4A else matroska.read_audio_header(data, 5)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "the file is empty"),
        (b"<html>", "unsupported audio format: send WAV, AIFF, MP3, AAC, FLAC, Ogg (Opus or Vorbis), M4A"),
        (b"RIFF\x04\0\0\0WEBP" + bytes(20), "the RIFF file is not a WAV"),
        (WAV[:30], "truncated: the file ends in its header"),
        (audio_file(NOISE, subtype="GSM610"), "WAV with the encoding 0x31: save it as PCM"),
        (replaced(audio_file(NOISE, subtype="IMA_ADPCM"), 38, b"\xff\xff"), "inconsistent block size"),
        (audio_file(NOISE, format="AIFF", subtype="GSM610"), "AIFF with the encoding 'GSM ': save it as PCM"),
        (W64[:90], "truncated: the file ends in its header"),
        (replaced(W64, 24, b"XXXX"), "the W64 is not audio"),
        (replaced(W64, 56, bytes(8)), "the W64 has a chunk with an invalid size"),
        (W64[:40] + (b"XXXX" + W64[44:56] + struct.pack("<Q", 24)) * 1001, "the WAV has 1000 chunks and no samples"),
        (WAV_MP3[:-9], "truncated: the MP3 ends in a frame"),
        (replaced(WAV_MP3, WAV_MP3.index(b"data") + 8, b"X"), "the WAV has no MP3 frame"),
        (AVI[:-9], "truncated: the AVI ends in a chunk"),
        (video_file("AVI", "mpeg4"), "the AVI has no sound"),
        (AIFF[:20], "truncated: the file ends in its header"),
        (replaced(AIFF, 8, b"XXXX"), "the FORM file is not an AIFF"),
        (AIFF[:12] + b"XXXX\0\0\0\0" * 2000, "the AIFF has 1000 chunks and no format"),
        (AAC[:-1], "truncated: the AAC ends in a frame"),
        (AAC + b"garbage", "the AAC has invalid data in place of a frame"),
        (replaced(WAV, 32, b"\0\0"), "inconsistent sample size"),
        (FLAC[:20], "truncated: the file ends in its header"),
        (FLAC[:27], "truncated: the file ends in its header"),
        (replaced(FLAC[:42], 4, b"\x80"), "truncated: the FLAC has no frame"),
        (replaced(FLAC[:42], 4, b"\x80") + bytes(100), "the FLAC has no frame after its metadata"),
        (FLAC[:42] + b"\x01\0\0\0" * 2000, "the FLAC has 1000 metadata blocks and no frame"),
        (audio_file(NOISE, format="OGG")[:10], "truncated: the file ends in its header"),
        (b"OggS" + bytes(22) + b"\x01\x1e\x80theora" + bytes(100), "Ogg without Opus or Vorbis"),
        (b"ID3\x04\0\0\0\0\0\x05hello" + bytes(100), "unsupported audio format after the ID3 tag: send WAV, AIFF"),
        (b"ID3\x04\0\0\0\0\x05\0hello", "truncated: the file ends in its header"),
        (MP3 + b"garbage", "invalid data in place of a frame"),
        (M4A[:-9], "truncated: the MP4 ends in a box"),
        (M4A.replace(b"soun", b"text"), "broken: the M4A has no sound"),
        (M4A.replace(b"mp4a", b"alac", 1), "unsupported audio codec 'alac': convert the audio to WAV"),
        (WEBM[:-9], "truncated: the WebM ends in an element"),
        (WEBM.replace(b"A_OPUS", b"A_DTS\0"), "unsupported audio codec 'A_DTS'"),
        (
            WEBM.replace(b"webm", b"rosa"),
            "unsupported container of audio 'rosa': send WebM, or convert the audio to WAV",
        ),
        (replaced(WEBM, WEBM.index(b"\x44\x89\x88") + 3, struct.pack(">d", 1e308)), "a duration that is not finite"),
    ],
)
def test_invalid_audio_is_an_error_with_its_reason(data: bytes, message: str) -> None:
    with pytest.raises(MediaError) as caught:
        read_audio_header(data, MAX_SECONDS)

    assert message in caught.value.message


@pytest.mark.parametrize(
    ("data", "problem", "message"),
    [
        (audio_file(sound(0, 0)), "too_small", "the audio has no samples"),
        (audio_file(sound(0, 2.5)), "too_large", r"the audio takes 2.5 s (limit audio-seconds=2, "),
        (audio_file(sound(0, 4), format="MP3"), "too_large", "(limit audio-seconds=2, "),
        (
            replaced(WAV, 24, struct.pack("<I", 0)),
            "unsupported",
            "the audio has 0 samples per second: send 1 to 192000",
        ),
        (
            replaced(WAV, 24, struct.pack("<I", 400_000)),
            "unsupported",
            "400000 samples per second",
        ),
        (audio_file(sound(0, 0.1, channels=9)), "unsupported", "the audio has 9 channels: send 1 to 8"),
    ],
)
async def test_audio_beyond_a_limit_is_an_error_with_its_reason(data: bytes, problem: str, message: str) -> None:
    with pytest.raises(MediaError) as caught:
        await RULES["audio"].inspect(data, Limits(audio_seconds=2), "messages[0].content[0]")

    assert caught.value.problem == problem
    assert message in caught.value.message


@pytest.mark.parametrize(("nbytes", "on_event_loop"), [(16 * KIB, True), (16 * KIB + 1, False)])
async def test_the_frames_of_larger_files_are_read_in_a_thread(nbytes: int, on_event_loop: bool) -> None:
    threads = []

    def read_header(data: bytes, limits: Limits) -> MediaHeader:
        threads.append(threading.current_thread())
        return RULES["audio"].read_header(data, limits)

    rules = replace(RULES["audio"], read_header=read_header)
    frames = b"\xff\xf3\x14\xc4".ljust(nbytes, b"\0")
    with suppress(MediaError):
        await rules.inspect(frames, Limits(), "messages[0].content[0]")

    assert [thread is threading.main_thread() for thread in threads] == [on_event_loop]


@pytest.mark.parametrize(
    ("start", "part", "count"),
    [
        (WAV[:12], b"LIST\0\0\0\0", 2_000_000),
        (b"", b"\xff\xf3\x14\xc4", 5_000_001),
        (b"OggS" + bytes(22) + b"\x01\x1eOpusHead", b"OggS\0", 4_000_000),
        (b"", b"ID3\x04\0\0\0\0\0\0", 2_000_000),
        (FLAC[:42], b"\x01\0\0\0", 5_000_000),
    ],
)
def test_audio_with_millions_of_parts_is_rejected_quickly(start: bytes, part: bytes, count: int) -> None:
    data = start + part * count
    before = time.thread_time()

    with suppress(MediaError):
        read_audio_header(data, MAX_SECONDS)

    assert time.thread_time() - before < 1


@pytest.mark.parametrize("format", FORMATS)
def test_changed_bytes_never_raise_another_error(format: str) -> None:
    original, random = audio_file(sound(2, 0.2), format=format), Random(0)
    mutations: list[Callable[[bytearray], None]] = [
        lambda data: data.__setitem__(random.randrange(min(len(data), 200)), random.randrange(256)),
        lambda data: data.__delitem__(slice(random.randrange(len(data)), None)),
        lambda data: data.__setitem__(slice(random.randrange(100), 110), random.randbytes(10)),
    ]
    for _ in range(500):
        data = bytearray(original)
        random.choice(mutations)(data)
        with suppress(MediaError):
            RULES["audio"].read_header(bytes(data), Limits())
