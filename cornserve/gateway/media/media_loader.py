"""Replaces the media that clients sent in a request with inspected media."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from cornserve.app.media_slots import MediaSlot
from cornserve.concurrency import gather_all
from cornserve.gateway.errors import ApiError
from cornserve.gateway.media import data_url
from cornserve.gateway.media.errors import MediaError
from cornserve.gateway.media.fetch import MediaFetcher
from cornserve.gateway.media.inspection import GIGA, MEGA, RULES, inspect_sound
from cornserve.limits import Limits
from cornserve_tasklib.media import Audio, Image, Media, Modality, Video

ReserveBytes = Callable[[int], None]
"""Called with the size of received data. It may raise an error."""

RunStep = Callable[[Callable[[], bytes]], Awaitable[bytes]]
"""Runs a function that would block other requests for milliseconds, when it is its turn."""

MIN_STEP_CHARACTERS = 64 * 1024
"""Shorter base64 is decoded immediately."""

PLURALS: dict[Modality, str] = {"image": "images", "audio": "audios", "video": "videos"}
"""The names of the limits on the number of media in a request."""


class MediaLoader:
    """Decodes or fetches media, and checks them."""

    def __init__(self, fetcher: MediaFetcher) -> None:
        self._limits = fetcher.limits
        self._fetcher = fetcher

    async def load(self, slots: Sequence[MediaSlot], reserve_bytes: ReserveBytes, run_step: RunStep) -> None:
        """Replaces the sent media. Raises an `ApiError` (400) that names the invalid part."""
        files = [slot for slot in slots if not slot.is_sound]
        sounds = [slot for slot in slots if slot.is_sound]
        counts = Counter(slot.modality for slot in files)
        for modality, name in PLURALS.items():
            if counts[modality] > getattr(self._limits, name):
                message = f"the request has {counts[modality]} {name} ({self._limits.hint(name)})"
                raise ApiError(400, message, param="messages", code=f"too_many_{name}")
        await gather_all(self._load(slot, reserve_bytes, run_step) for slot in files)
        await gather_all(self._load_sound(slot) for slot in sounds)
        self._check_decoded_sizes([slot.media for slot in slots])

    def _check_decoded_sizes(self, media: Sequence[Media]) -> None:
        """Limits the decoded size, which a small file may exceed."""
        pixels = sum(medium.width * medium.height for medium in media if isinstance(medium, Image))
        if pixels > self._limits.request_megapixels * MEGA:
            message = f"the images have {pixels} pixels in total ({self._limits.hint('request-megapixels')})"
            raise ApiError(400, message, param="messages", code="images_too_large")
        seconds = sum(medium.seconds for medium in media if isinstance(medium, Audio))
        if seconds > self._limits.request_audio_seconds:
            message = f"the audios take {seconds:.1f} s in total ({self._limits.hint('request-audio-seconds')})"
            raise ApiError(400, message, param="messages", code="audios_too_large")
        _check_videos([medium for medium in media if isinstance(medium, Video)], self._limits)

    async def _load(self, slot: MediaSlot, reserve_bytes: ReserveBytes, run_step: RunStep) -> None:
        try:
            slot.set_media(await self._inspected(slot, reserve_bytes, run_step))
        except MediaError as error:
            raise _unusable(slot, error, slot.modality) from error

    async def _load_sound(self, slot: MediaSlot) -> None:
        try:
            slot.set_media(await inspect_sound(slot.video, self._limits))
        except MediaError as error:
            raise _unusable(slot, error, "video") from error

    async def _inspected(self, slot: MediaSlot, reserve_bytes: ReserveBytes, run_step: RunStep) -> Media:
        rules, url = RULES[slot.modality], slot.url
        if data_url.is_data_url(url):
            data_url.check_encoding(url)
            rules.check_bytes(data_url.max_decoded_size(url), self._limits)
            decode = partial(data_url.decode_content, url)
            content = await run_step(decode) if data_url.encoded_size(url) > MIN_STEP_CHARACTERS else decode()
        else:
            content = await self._fetcher.fetch(url, rules, reserve_bytes)
        return await rules.inspect(content, self._limits, slot.path)


def _unusable(slot: MediaSlot, error: MediaError, modality: Modality) -> ApiError:
    return ApiError(400, f"{slot.param}: {error.message}", param=slot.param, code=error.code(modality))


def _check_videos(videos: Sequence[Video], limits: Limits) -> None:
    seconds = sum(video.seconds for video in videos)
    if seconds > limits.request_video_seconds:
        message = f"the videos take {seconds:.1f} s in total ({limits.hint('request-video-seconds')})"
        raise ApiError(400, message, param="messages", code="videos_too_large")
    pixels = sum(video.width * video.height * video.frames for video in videos)
    if pixels > limits.request_video_gigapixels * GIGA:
        message = f"the frames of the videos have {pixels} pixels ({limits.hint('request-video-gigapixels')})"
        raise ApiError(400, message, param="messages", code="videos_too_large")
