"""Reads and validates the bodies of requests.

The body of a large request is read in steps: its media are cut out, its values counted, its JSON parsed and validated.
Between the steps, the event loop serves other requests.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from functools import partial
from typing import TypeVar

from pydantic import BaseModel, ValidationError
from starlette.requests import Request

from cornserve.app.media_slots import MediaSlot, find_media_slots
from cornserve.gateway.endpoints.unknown_fields import BodyValidation
from cornserve.gateway.endpoints.unsupported_fields import UNSUPPORTED_FIELDS
from cornserve.gateway.errors import ApiError
from cornserve.gateway.http.auth import KEY_HEADERS
from cornserve.gateway.http.request_body import (
    Content,
    RequestBody,
    check_constants,
    check_values,
    parse_json,
    take_body,
)
from cornserve.gateway.media.cut_media import CutBody, cut_media, find_similar_texts, insert_media
from cornserve.limits import MIB

Result = TypeVar("Result")
Value = TypeVar("Value")
Body = TypeVar("Body", bound=BaseModel)

LARGE_BYTES = 64 * 1024
"""Larger bodies are read in steps."""


async def read_fields(
    request: Request, body_type: type[Body], find_slots: Callable[[Body], list[MediaSlot]] = find_media_slots
) -> Body:
    """Returns the body as a `body_type`; null stands for an omitted field. Raises an `ApiError` (400, 413, 415).

    Args:
        find_slots: returns the media of the body.
    """
    body = take_body(request)
    content = body.detach()
    try:
        if len(content) <= LARGE_BYTES:
            return BodyValidation(request.scope, parse_json(content), body_type).body()
        large = LargeBodyReader(body, client_identity(request))

        async def read(json: Content) -> Body:
            validation = BodyValidation(request.scope, await large.run(partial(parse_json, json)), body_type)
            while (found := await large.run(validation.step)) is None:
                pass
            return found

        return await large.read(content, read, find_slots)
    except ValidationError as error:
        raise ApiError.from_validation_error(error, reasons=UNSUPPORTED_FIELDS) from error


async def read_native(
    request: Request, parse: Callable[[Content], Awaitable[tuple[Value, list[MediaSlot]]]]
) -> tuple[Value, list[MediaSlot]]:
    """Returns the body as parsed by an app, and the media in it. Raises an `ApiError` (400, 413, 415)."""
    body = take_body(request)
    content = body.detach()
    try:
        if len(content) <= LARGE_BYTES:
            check_constants(content)
            return await parse(content)
        large = LargeBodyReader(body, client_identity(request))

        async def read(json: Content) -> tuple[Value, list[MediaSlot]]:
            await large.run(partial(check_constants, json))
            return await parse(json)

        return await large.read(content, read, lambda value: value[1])
    except ValidationError as error:
        raise ApiError.from_validation_error(error) from error


def read_validated(request: Request, validate_json: Callable[[Content], Value]) -> Value:
    """Returns the body of an administrative request. Raises an `ApiError` (400, 413, 415) if it is not valid."""
    body = take_body(request)
    content, limits = body.detach(), body.admission.limits
    if len(content) > limits.text_mib * MIB:
        raise body.admission.text_too_large(len(content))
    check_values(content, limits)
    check_constants(content)
    try:
        return validate_json(content)
    except ValidationError as error:
        raise ApiError.from_validation_error(error) from error


class LargeBodyReader:
    """Reads one body in steps.

    Args:
        owner: identifies the client. Clients take turns.
    """

    def __init__(self, body: RequestBody, owner: str) -> None:
        self._admission = body.admission
        self._owner = owner

    async def run(self, step: Callable[[], Result]) -> Result:
        return await self._admission.large_work.run(step, self._owner)

    async def read(
        self,
        content: Content,
        read_json: Callable[[Content], Awaitable[Value]],
        find_slots: Callable[[Value], list[MediaSlot]],
    ) -> Value:
        """Returns `read_json` of the content, after its media have been cut out and inserted again."""
        cut = await self._cut(content)
        value = await self._read_counted(cut.json, read_json)
        slots = find_slots(value)
        if similar := find_similar_texts(slots, cut.media):
            cut = await self._cut(content, similar)
            value = await self._read_counted(cut.json, read_json)
            slots = find_slots(value)
        insert_media(slots, cut.media)
        return value

    async def _cut(self, content: Content, kept_urls: Collection[str] = ()) -> CutBody:
        """Returns the content without its media. Raises a 413 if its text is too large."""
        cut = await self.run(partial(cut_media, content, self._admission.limits.text_mib * MIB, kept_urls))
        if cut is None:
            raise self._admission.text_too_large(len(content))
        return cut

    async def _read_counted(self, json: Content, read_json: Callable[[Content], Awaitable[Value]]) -> Value:
        await self.run(partial(check_values, json, self._admission.limits))
        return await read_json(json)


def client_identity(request: Request) -> str:
    """Returns a text that differs between clients: their address and key."""
    host = request.client.host if request.client is not None else ""
    keys = [request.headers.get(name, "") for name in ("authorization", *(name.decode() for name in KEY_HEADERS))]
    return " ".join([host, *keys])
