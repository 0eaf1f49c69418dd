"""nginx as a reverse proxy that serves an instance below a path prefix, like an Ingress that rewrites the path."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import httpx2 as httpx

from tests.free_ports import free_port
from tests.programs import require_program
from tests.waiting import wait_until

PREFIX: Final = "/ml/corn"

_CONFIGURATION: Final = """
daemon off;
worker_processes 1;
error_log stderr;
pid {directory}/nginx.pid;
events {{}}
http {{
    access_log off;
    client_body_temp_path {directory}/body;
    proxy_temp_path {directory}/proxy;
    fastcgi_temp_path {directory}/fastcgi;
    uwsgi_temp_path {directory}/uwsgi;
    scgi_temp_path {directory}/scgi;
    server {{
        listen 127.0.0.1:{port};
        location {prefix}/ {{
            proxy_pass {url}/;
            proxy_http_version 1.1;
            proxy_set_header Host $http_host;
            proxy_buffering off;
        }}
    }}
}}
"""


@contextmanager
def prefix_proxy(url: str, directory: Path) -> Iterator[str]:
    """Starts nginx in front of `url`. Returns the URL with the prefix, below which it forwards requests."""
    program = require_program("nginx")
    port = free_port()
    configuration = directory / "nginx.conf"
    configuration.write_text(_CONFIGURATION.format(directory=directory, port=port, prefix=PREFIX, url=url))
    below = f"http://127.0.0.1:{port}{PREFIX}"
    with subprocess.Popen([program, "-c", str(configuration)]) as process:
        try:
            wait_until(lambda: _answers(f"{below}/livez"))
            yield below
        finally:
            process.terminate()


def _answers(url: str) -> bool:
    try:
        return httpx.get(url, trust_env=False).status_code == 200
    except httpx.TransportError:
        return False
