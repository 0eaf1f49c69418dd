"""Serves `/console`: the files of the page, sign-in, and the gateway's API to signed-in browsers.

The page only uses relative URLs, and the cookie has no path, so browsers send it to `…/console/` alone. The console
therefore works behind a proxy that adds a prefix, and the cookie authorizes nothing outside of it.
`/console/admin/v1/…` and `/console/v1/…` are the paths of the API with the token of the session.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import cookie_parser
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from cornserve.gateway.console.session_guard import call_during_session
from cornserve.gateway.console.sessions import SESSION_SECONDS, BrowserSessions, Role
from cornserve.gateway.console.static_files import INDEX, console_files
from cornserve.gateway.errors import ApiError
from cornserve.gateway.http.auth import READING_METHODS, read_only_error
from cornserve.gateway.http.request_id import REQUEST_ID, RequestId

PATH: Final = "/console"

CHANGE_HEADER: Final = b"x-cornserve-console"
"""Requests that may change something have this header. Pages of other sites cannot send it without a permission."""

MAX_SIGN_IN_BYTES: Final = 4096

_CONTENT_POLICY: Final = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; font-src 'self'; connect-src 'self'; worker-src 'self'; "
    b"img-src 'self' data: blob:; media-src 'self' data: blob:; "
    b"base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)

SECURITY_HEADERS: Final = (
    (b"content-security-policy", _CONTENT_POLICY),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
)

_NOT_FORWARDED: Final = (b"cookie", b"authorization", b"x-api-key", b"api-key")


class _SignIn(BaseModel):
    model_config = ConfigDict(extra="forbid")

    token: str = Field(max_length=MAX_SIGN_IN_BYTES)


class SessionView(BaseModel):
    """The session of a browser in responses."""

    role: Role | None
    """The role, or None if the browser has not signed in."""
    needs_token: bool
    """Whether browsers must sign in."""
    expires: int | None = None
    """The end of the session in seconds since 1970."""
    version: str | None = None
    """The version of the gateway, for signed-in browsers."""


class ConsoleMiddleware:
    """Serves the console, and calls `api` for the requests of its page to the API.

    Args:
        other: called for all requests outside of the console.
    """

    def __init__(self, api: ASGIApp, sessions: BrowserSessions, other: ASGIApp) -> None:
        self._api = api
        self._other = other
        self._sessions = sessions
        self._files = console_files()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not (scope["path"] == PATH or scope["path"].startswith(f"{PATH}/")):
            await self._other(scope, receive, send)
            return

        async def send_secured(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message["headers"], *SECURITY_HEADERS]}
            await send(message)

        try:
            await self._serve(scope, receive, send_secured)
        except ApiError as error:
            request_id: RequestId = scope["state"][REQUEST_ID]
            content = error.content_for(scope["path"].removeprefix(PATH), scope["headers"], request_id.value)
            headers = [(name.encode(), value.encode()) for name, value in error.headers.items()]
            await _respond(send_secured, error.status, content, b"application/json", headers)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        path, method, headers = scope["path"].removeprefix(PATH), scope["method"], dict(scope["headers"])
        if path == "":
            await _respond(send, 307, b"", b"text/plain", [(b"location", b"console/")])
        elif path == "/session":
            _check_same_site(method, headers)
            await self._serve_session(method, headers, receive, send)
        elif path.startswith(("/admin/", "/v1/")):
            _check_same_site(method, headers)
            await self._forward(scope, path, self._cookie(headers), receive, send)
        else:
            await self._send_file(scope, path, receive, send)

    def _cookie(self, headers: Mapping[bytes, bytes]) -> str:
        cookies = cookie_parser(headers.get(b"cookie", b"").decode("latin-1"))
        return cookies.get(self._sessions.cookie, "")

    async def _serve_session(self, method: str, headers: Mapping[bytes, bytes], receive: Receive, send: Send) -> None:
        """Signs in, signs out, or returns the session."""
        cookie, cookies = self._cookie(headers), list[tuple[bytes, bytes]]()
        session = self._sessions.find(cookie)
        if method == "POST":
            signed_in = self._sessions.sign_in(await _read_token(receive))
            if signed_in is None and self._sessions.needs_token:
                raise ApiError(401, "unknown token: give the admin token or the read-only token", code="invalid_token")
            if signed_in is not None:
                session, value = signed_in
                cookies.append(_set_cookie(self._sessions.cookie, value, SESSION_SECONDS, headers))
        elif method == "DELETE":
            self._sessions.end(cookie)
            await _respond(send, 204, b"", None, [_set_cookie(self._sessions.cookie, "", 0, headers)])
            return
        elif method not in READING_METHODS:
            raise ApiError(405, f"the session has no method {method}")
        view = SessionView(role=None, needs_token=self._sessions.needs_token)
        if session is not None:
            details = {"role": session.role, "expires": session.expires, "version": version("cornserve")}
            view = view.model_copy(update=details)
        content = view.model_dump_json().encode() if method != "HEAD" else b""
        await _respond(send, 200, content, b"application/json", [(b"cache-control", b"no-store"), *cookies])

    async def _forward(self, scope: Scope, path: str, cookie: str, receive: Receive, send: Send) -> None:
        """Calls the API with the token of the session. The response ends with the session."""
        session = self._sessions.find(cookie)
        if session is None:
            raise ApiError(401, "sign in at the console", code="not_signed_in")
        if session.role is Role.VIEWER and scope["method"] not in READING_METHODS:
            raise read_only_error()
        headers = [(name, value) for name, value in scope["headers"] if name not in _NOT_FORWARDED]
        if session.token is not None:
            headers.append((b"authorization", b"Bearer " + session.token.encode()))
        raw_path = scope.get("raw_path", b"").removeprefix(PATH.encode())
        forwarded = {**scope, "path": path, "raw_path": raw_path, "headers": headers}
        await call_during_session(self._api, forwarded, receive, send, lambda: self._sessions.find(cookie) is not None)

    async def _send_file(self, scope: Scope, path: str, receive: Receive, send: Send) -> None:
        name = path.removeprefix("/") or INDEX
        try:
            await self._files({**scope, "path": f"/{name}", "root_path": ""}, receive, send)
        except HTTPException as error:
            reason = f"has no file {name!r}" if error.status_code != 405 else f"has no method {scope['method']}"
            raise ApiError(error.status_code, f"the console {reason}") from error


def _check_same_site(method: str, headers: Mapping[bytes, bytes]) -> None:
    """Raises an `ApiError` (403) if a page of another site may have sent the request."""
    site, origin = headers.get(b"sec-fetch-site"), headers.get(b"origin")
    if site is not None:
        is_own = site in (b"same-origin", b"none")
    else:  # Browsers send it only to addresses that they trust: https, and this machine.
        hosts = (headers.get(b"host", b""), headers.get(b"x-forwarded-host", b""))
        is_own = origin is None or origin.partition(b"://")[2] in filter(None, hosts)
    if not is_own or (method not in READING_METHODS and CHANGE_HEADER not in headers):
        message = f"the page of another site has sent the request, or the header {CHANGE_HEADER.decode()} is missing"
        raise ApiError(403, message, code="cross_site")


def _set_cookie(name: str, value: str, seconds: int, headers: Mapping[bytes, bytes]) -> tuple[bytes, bytes]:
    is_encrypted = headers.get(b"origin", b"").startswith(b"https:") or headers.get(b"x-forwarded-proto") == b"https"
    flags = "; Secure" if is_encrypted else ""
    return b"set-cookie", f"{name}={value}; Max-Age={seconds}; HttpOnly; SameSite=Strict{flags}".encode()


async def _read_token(receive: Receive) -> str:
    """Reads the body of a sign-in. Raises an `ApiError`."""
    body = b""
    while True:
        message = await receive()
        body += message.get("body", b"")
        if len(body) > MAX_SIGN_IN_BYTES:
            raise ApiError(413, f"a sign-in has at most {MAX_SIGN_IN_BYTES} bytes")
        if not message.get("more_body", False):
            break
    try:
        return _SignIn.model_validate_json(body).token
    except ValidationError:
        raise ApiError(400, 'give {"token": "…"}', param="token") from None


async def _respond(
    send: Send,
    status: int,
    content: bytes,
    content_type: bytes | None,
    headers: Sequence[tuple[bytes, bytes]],
) -> None:
    sent = [*headers] if content_type is None else [(b"content-type", content_type), *headers]
    if status not in (204, 304):
        sent.append((b"content-length", b"%d" % len(content)))
    await send({"type": "http.response.start", "status": status, "headers": sent})
    await send({"type": "http.response.body", "body": content, "more_body": False})
