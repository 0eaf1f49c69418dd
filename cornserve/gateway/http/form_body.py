"""Splits the body of a form with files (`multipart/form-data`, RFC 7578).

`RequestMiddleware` has received the complete body. A search for the boundary therefore replaces a streaming parser, and
the content of a file is not copied.
"""

from __future__ import annotations

from email.message import Message
from email.parser import BytesHeaderParser
from email.utils import collapse_rfc2231_value
from typing import NamedTuple

from cornserve.gateway.errors import ApiError
from cornserve.gateway.http.request_body import Content

FORM = "multipart/form-data"

MAX_PARTS = 64
"""The maximum number of fields and files of a form."""

MAX_PART_HEAD_BYTES = 4096
"""The maximum size of the headers of a part."""

_DISPOSITION = "content-disposition"


class FormPart(NamedTuple):
    """A field or a file."""

    name: str
    content: memoryview
    is_file: bool


def form_boundary(content_type: str) -> bytes:
    """Returns the delimiter of the parts. Raises a 415 for other content types, and a 400 without a boundary."""
    message = Message()
    message["content-type"] = content_type
    if message.get_content_type() != FORM:
        given = content_type.partition(";")[0].strip()
        raise ApiError(415, f"unsupported content type {given!r}: send a form with a file (content-type: {FORM})")
    boundary = message.get_boundary()
    if not boundary:
        raise ApiError(400, f"the content type {FORM} has no boundary", code="invalid_form")
    return boundary.encode()


def split_form(content: Content, boundary: bytes) -> list[FormPart]:
    """Returns the parts in order. Raises a 400 if the body is not a complete form."""
    view = memoryview(content)
    opening = b"--" + boundary
    delimiter = b"\r\n" + opening
    position = 0 if content.startswith(opening) else content.find(delimiter) + 2
    if position == 1:
        raise _invalid("its first part does not begin with the boundary")
    parts: list[FormPart] = []
    while True:
        position += len(opening)
        if content[position : position + 2] == b"--":
            return parts
        if len(parts) == MAX_PARTS:
            raise _invalid(f"it has more than {MAX_PARTS} parts")
        end = content.find(delimiter, position)
        if end < 0:
            raise _invalid("its last part does not end with the boundary")
        parts.append(_part(view[position:end]))
        position = end + 2


def _part(part: memoryview) -> FormPart:
    """Returns the part that follows a boundary: the end of the line, headers, a blank line and the content."""
    head, blank, _ = bytes(part[:MAX_PART_HEAD_BYTES]).partition(b"\r\n\r\n")
    if not blank:
        raise _invalid(f"the headers of a part are incomplete, or have more than {MAX_PART_HEAD_BYTES} bytes")
    headers = BytesHeaderParser().parsebytes(head.partition(b"\r\n")[2])
    name = collapse_rfc2231_value(headers.get_param("name", "", _DISPOSITION))
    if not name:
        raise _invalid("a part has no name")
    is_file = headers.get_param("filename", None, _DISPOSITION) is not None
    return FormPart(name, part[len(head) + len(blank) :], is_file)


def _invalid(problem: str) -> ApiError:
    return ApiError(400, f"the body is not a valid form: {problem}", code="invalid_form")
