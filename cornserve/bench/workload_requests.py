"""Requests with the sizes of a workload."""

from __future__ import annotations

from pathlib import Path

from cornserve.bench.requests import RequestError
from cornserve.bench.workload_chats import GeneratedChat
from cornserve.bench.workload_images import GeneratedImages
from cornserve.bench.workload_speech import GeneratedSpeech
from cornserve_planner.requests.request import WorkloadRequest
from cornserve_planner.workload.request_files import read_requests

GeneratedRequest = GeneratedChat | GeneratedImages | GeneratedSpeech


def workload_requests(path: Path) -> list[GeneratedRequest]:
    """Returns the requests of a planner's file of requests: chats, or requests for images or speech.

    Raises `RequestError` for requests that cannot be generated, and the planner's `InvalidInputError`.
    """
    return [_request(request, path) for request in read_requests(path)]


def _request(request: WorkloadRequest, path: Path) -> GeneratedRequest:
    try:
        if "image" in request.output_modalities:
            return GeneratedImages.of(request)
        if request.output_modalities == ("audio",):
            return GeneratedSpeech.of(request)
    except RequestError as error:
        raise RequestError(
            f"{path}: the request at {request.arrival:g} s {error}: remove it, or give requests of the app"
        ) from error
    return GeneratedChat.of(request)
