"""Generates malformed requests from a seed, and checks the responses."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random
from typing import Any

import httpx2 as httpx
from httpx2 import URL

from tests.unit.gateway.image_files import data_url, image_file

CHAT = "/v1/chat/completions"
INVOKE = "/v1/apps/echo/invoke"
DEPLOY = "/admin/v1/apps/fuzz"

WRONG_VALUES: list[Any] = [
    {},
    [],
    [[]],
    {"a": {}},
    -1,
    1.5,
    "x",
    "",
    True,
    [None],
    {"": None},
    "\x00",
    "\u202e",
    "💥" * 50,
    "x" * 5000,
    [1] * 500,
]
BASE64 = [
    "data:image/png;base64,@@@@",
    "data:;base64,AAA",
    "data:image/png;base64,",
    "data:,",
    "data:image/png;base64",
    "data:image/png,x",
    "data:image/gif;base64,R0lGODlh",
    "data:text/html;base64,AAAA",
    "data:image/png;base64,iVBORw0KGgo=",
    "ftp://x/y",
    "file:///etc/passwd",
    "x",
    "//x",
    "http:",
    "http://[",
    "http://\x00/",
    "http://" + "x" * 9000,
    "http://169.254.169.254/",
    "http://127.1/",
    "http://0x7f000001/",
    "http://[::ffff:127.0.0.1]/",
    "http://localhost:22/",
    "http://a:b@127.0.0.1/",
    "http://xn--/",
    "http://xn--a/",
    "http://a.xn--/",
]
INVALID_JSON = [
    b"",
    b" ",
    b"{",
    b"}",
    b"[",
    b'"',
    b"nul",
    b"NaN",
    b"{'a': 1}",
    b'{"a": 1,}',
    b"\xff\xfe",
    b"\xef\xbb\xbf{}",
    b"\x00",
    b'{"a": NaN}',
    b'{"a": -Infinity}',
    b'{"a": \xed\xa0\x80}',
    b'"\\ud800"',
    b'{"\\udc00": 1}',
    b"[" * 5000,
    b'{"a":' * 5000,
    b'{"model": ' + b"9" * 5000 + b"}",
    b"1" * 100_000,
    b"--boundary\r\n",
    b"a=b&c=d",
]
TYPES = [
    "text/plain",
    "multipart/form-data; boundary=x",
    "application/xml",
    "image/png",
    "x",
    "\x7f",
    "application/json2",
]
NAMES = ["..", "%00", "%0a", "a%2Fb", "%ff%fe", "%ED%A0%80", "%F0%9F%92%A5", "a" * 3000, "A%20B", "';--", "-", "%"]
BROKEN_HTTP = [
    b"\r\n\r\n\r\nGARBAGE",
    b"GET\r\n\r\n",
    b"GET / HTTP/9.9\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01",
    b"POST / HTTP/1.1\r\nA\r\n\r\n",
    b"POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
    b"POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
    b"POST / HTTP/1.1\r\nContent-Length: x\r\n\r\n",
    b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    b"GET /\xff\xfe HTTP/1.1\r\n\r\n",
    b"GET http://[::1 HTTP/1.1\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"POST / HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    b"GET / HTTP/1.1\r\nX: \x00\r\n\r\n",
    b"G\x00T / HTTP/1.1\r\n\r\n",
    b"GET / HTTP/1.1\r\n folded: x\r\n\r\n",
]


@dataclass(frozen=True, slots=True)
class MalformedRequest:
    kind: str
    method: str
    path: str
    body: bytes = b""
    content_type: str = "application/json"

    def __str__(self) -> str:
        return f"{self.kind}: {self.method} {self.path[:80]!r} {self.content_type!r} {self.body[:200]!r}"


def malformed_requests(seed: int, count: int) -> Iterator[MalformedRequest]:
    random = Random(seed)
    for _ in range(count):
        yield random.choice(_KINDS)(random)


async def unexpected_response(gateway: httpx.AsyncClient, request: MalformedRequest) -> str | None:
    """Returns a description of the response if it is not the expected error."""
    headers = {b"content-type": request.content_type.encode()}
    url = URL(str(gateway.base_url).rstrip("/")).copy_with(raw_path=request.path.encode())
    response = await gateway.request(request.method, url, content=request.body, headers=headers)
    if not 400 <= response.status_code < 500:
        return f"{request} → {response.status_code} {response.text[:200]}"
    error = response.json()["error"]
    fits = set(error) == {"message", "type", "param", "code"} and isinstance(error["message"], str) and error["message"]
    return None if fits and len(response.content) < 30_000 else f"{request} → {response.text[:200]}"


def _wrong_field(random: Random) -> MalformedRequest:
    body: dict[str, Any] = {"model": "parrot", "messages": [{"role": "user", "content": "x"}]}
    match random.randrange(4):
        case 0:
            wrong = [value for value in WRONG_VALUES if not (isinstance(value, str))]
            body[random.choice(["model", "messages"])] = random.choice(wrong)
        case 1:
            body["messages"] = [{"role": random.choice(WRONG_VALUES), "content": "x"}]
        case 2:
            body[random.choice(["stream_options", "stop", "max_tokens"])] = random.choice([{"a": {}}, -1, [[]], 1.5])
        case 3:
            body[random.choice(["bananas", "\x00", "💥", "x" * 9000, "", "__class__"])] = random.choice(WRONG_VALUES)
    return MalformedRequest("wrong field", "POST", CHAT, _dump(body))


def _unknown_model(random: Random) -> MalformedRequest:
    body = {"model": random.choice(NAMES) + "?", "messages": [{"role": "user", "content": "x"}]}
    return MalformedRequest("unknown model", "POST", CHAT, _dump(body))


def _bad_media(random: Random) -> MalformedRequest:
    url = random.choice(BASE64)
    part = random.choice(
        [
            {"type": "image_url", "image_url": {"url": url}},
            {"type": "image_url", "image_url": {"url": _damaged(random)}},
            {"type": "image_url", "image_url": random.choice(WRONG_VALUES)},
            {"type": "media", "media": {"data": {"$input": 0}, "format": url, "width": 1, "height": 1}},
            {"type": "audio_url", "audio_url": {"url": _damaged(random)}},
            {"type": "input_audio", "input_audio": {"data": url, "format": "wav"}},
            {"type": "video_url", "video_url": url},
        ]
    )
    return MalformedRequest(
        "bad media", "POST", CHAT, _dump({"model": "parrot", "messages": [{"role": "user", "content": [part]}]})
    )


def _damaged(random: Random) -> str:
    """Returns a truncated image as valid base64."""
    format = random.choice(["png", "jpeg", "gif", "webp"])
    content = image_file(format.upper(), (random.randrange(4, 64), random.randrange(4, 64)))
    return data_url(content[: random.randrange(len(content) - 1)], f"image/{format}")


def _invalid_json(random: Random) -> MalformedRequest:
    return MalformedRequest(
        "invalid JSON", *random.choice([("POST", CHAT), ("POST", INVOKE), ("PUT", DEPLOY)]), random.choice(INVALID_JSON)
    )


def _cut_short(random: Random) -> MalformedRequest:
    body = _dump({"model": "parrot", "messages": [{"role": "user", "content": "x"}]})
    return MalformedRequest("cut short", "POST", CHAT, body[: random.randrange(len(body))])


def _bit_flipped(random: Random) -> MalformedRequest:
    body = bytearray(_dump({"source": {"inline": "app = 1"}, "replicas": random.choice(WRONG_VALUES)}))
    body[random.randrange(len(body))] ^= 1 << random.randrange(8)
    return MalformedRequest("bit flipped", "PUT", DEPLOY, bytes(body))


def _wrong_type(random: Random) -> MalformedRequest:
    return MalformedRequest("wrong type", "POST", random.choice([CHAT, INVOKE]), b'{"text": "x"}', random.choice(TYPES))


def _wrong_method(random: Random) -> MalformedRequest:
    path = random.choice([CHAT, INVOKE, "/healthz", "/metrics", "/v1/models"])
    return MalformedRequest("wrong method", random.choice(["DELETE", "PATCH", "PUT", "BREW", "TRACE"]), path)


def _wrong_path(random: Random) -> MalformedRequest:
    path = random.choice(
        ["/v1/models/", "/v1/apps/{}/invoke", "/admin/v1/apps/{}", "/{}", "/v1/{}", "/admin/v1/apps/{}/logs"]
    )
    path = path.format(random.choice(NAMES)) if "{}" in path else path + random.choice(NAMES)
    return MalformedRequest("wrong path", "POST" if "invoke" in path else "GET", path, b"{}")


def _wrong_query(random: Random) -> MalformedRequest:
    value = random.choice(["x", "-1", "9" * 5000, "1e9", "%00", "%ED%A0%80", "", "nan"])
    return MalformedRequest("wrong query", "GET", f"/admin/v1/apps/echo/logs?lines={value}")


def _very_large(random: Random) -> MalformedRequest:
    fill = random.choice([b" ", b"[", b"1,", b'"', b"\xff", b"{}"])
    return MalformedRequest("very large", "POST", random.choice([CHAT, INVOKE]), fill * (1_200_000 // len(fill)))


_KINDS: list[Callable[[Random], MalformedRequest]] = [
    _wrong_field,
    _wrong_field,
    _wrong_field,
    _unknown_model,
    _bad_media,
    _invalid_json,
    _invalid_json,
    _cut_short,
    _bit_flipped,
    _wrong_type,
    _wrong_method,
    _wrong_path,
    _wrong_path,
    _wrong_query,
    _very_large,
]


def _dump(value: Any) -> bytes:
    return json.dumps(value).encode()
