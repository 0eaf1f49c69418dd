"""A server that speaks the part of the Hugging Face hub's protocol that downloads need."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

COMMIT = "0123456789abcdef0123456789abcdef01234567"
MODEL = "team/tiny"
GATED = "team/gated"


class Hub:
    """Serves the files of `MODEL` at the revisions `main` and `COMMIT`, and refuses access to `GATED`."""

    def __init__(self, files: dict[str, bytes]) -> None:
        self.files = files
        self.downloads: Counter[str] = Counter()
        """The number of downloads of each file."""
        self.url = ""

    def listing(self) -> list[dict[str, object]]:
        return [
            {"type": "file", "path": path, "oid": sha256(content).hexdigest()[:40], "size": len(content)}
            for path, content in self.files.items()
        ]


@contextmanager
def running_hub(files: dict[str, bytes]) -> Iterator[Hub]:
    hub = Hub(files)

    class HubHandler(_HubHandler):
        served = hub

    with ThreadingHTTPServer(("127.0.0.1", 0), HubHandler) as server:
        hub.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield hub
        finally:
            server.shutdown()
            thread.join()


class _HubHandler(BaseHTTPRequestHandler):
    served: Hub
    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        parts = self.path.partition("?")[0].strip("/").split("/")
        match parts:
            case ["api", "models", owner, name, *rest]:
                self._answer(f"{owner}/{name}", rest)
            case [owner, name, "resolve", _, *path]:
                self._send_file(f"{owner}/{name}", "/".join(path))
            case _:
                self._refuse("EntryNotFound", 404)

    def _answer(self, model: str, rest: list[str]) -> None:
        if model == GATED:
            self._refuse("GatedRepo", 403)
        elif model != MODEL:
            self._refuse("RepoNotFound", 404)
        elif len(rest) > 1 and rest[1] not in ("main", COMMIT):
            self._refuse("RevisionNotFound", 404)
        elif rest[:1] == ["tree"]:
            self._send(json.dumps(self.served.listing()).encode())
        else:
            siblings = [{"rfilename": path} for path in self.served.files]
            self._send(json.dumps({"id": MODEL, "sha": COMMIT, "siblings": siblings}).encode())

    def _send_file(self, model: str, path: str) -> None:
        content = self.served.files.get(path) if model == MODEL else None
        if content is None:
            self._refuse("EntryNotFound", 404)
            return
        if self.command == "GET":
            self.served.downloads[path] += 1
        self._send(content, {"ETag": f'"{sha256(content).hexdigest()[:40]}"', "X-Repo-Commit": COMMIT})

    def _refuse(self, code: str, status: int) -> None:
        self._send(b"", {"X-Error-Code": code, "X-Error-Message": code}, status)

    def _send(self, body: bytes, headers: dict[str, str] | None = None, status: int = 200) -> None:
        self.send_response(status)
        for name, value in {**(headers or {}), "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Logs nothing."""
