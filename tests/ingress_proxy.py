"""nginx in the place of an Ingress controller: it forwards requests by the rules of an Ingress."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from string import Template
from typing import Any, Final

import httpx2 as httpx

from tests.free_ports import free_port
from tests.programs import require_program
from tests.waiting import wait_until

HOST: Final = "corn.example"

PREFIX: Final = "/ml/corn"

_REWRITE: Final = "nginx.ingress.kubernetes.io/rewrite-target"

PREFIX_VALUES: Final = {
    "enabled": True,
    "host": HOST,
    "paths": [f"{PREFIX}(/|$)((v1|console).*)"],
    "pathType": "ImplementationSpecific",
    "annotations": {"nginx.ingress.kubernetes.io/use-regex": "true", _REWRITE: "/$2"},
}
"""Values of the chart's `gateway.ingress` for clients and the console below a prefix."""

PATHS_VALUES: Final = {"enabled": True, "host": HOST, "paths": ["/v1", "/console"]}
"""Values of the chart's `gateway.ingress` for clients and the console."""

_CONFIGURATION: Final = Template("""
daemon off;
worker_processes 1;
error_log stderr;
pid $directory/nginx.pid;
events {}
http {
    access_log off;
    client_body_temp_path $directory/body;
    proxy_temp_path $directory/proxy;
    fastcgi_temp_path $directory/fastcgi;
    uwsgi_temp_path $directory/uwsgi;
    scgi_temp_path $directory/scgi;
    proxy_http_version 1.1;
    proxy_set_header Host $$http_host;
    proxy_set_header X-Forwarded-Host $$http_host;
    proxy_set_header X-Forwarded-Proto $$scheme;
    proxy_buffering off;
    server {
        listen 127.0.0.1:$port;
$locations
        location / { return 404; }
    }
}
""")


@contextmanager
def ingress_proxy(ingress: Mapping[str, Any], url: str, directory: Path) -> Iterator[str]:
    """Starts nginx, which forwards the paths of an Ingress to a gateway. Yields its address.

    Paths are regular expressions that are rewritten if the Ingress has the annotation of ingress-nginx for it.

    Args:
        url: the address of the gateway.
    """
    program = require_program("nginx")
    port = free_port()
    [rule] = ingress["spec"]["rules"]
    target = ingress["metadata"].get("annotations", {}).get(_REWRITE)
    locations = "\n".join(_location(path["path"], target, url) for path in rule["http"]["paths"])
    configuration = directory / f"nginx-{port}.conf"
    configuration.write_text(_CONFIGURATION.substitute(directory=directory, port=port, locations=locations))
    address = f"http://127.0.0.1:{port}"
    with subprocess.Popen([program, "-c", str(configuration)]) as process:
        try:
            wait_until(lambda: _answers(address))
            yield address
        finally:
            process.terminate()


def rewriting_ingress(path: str) -> dict[str, Any]:
    """Returns the parts of an Ingress that forwards the second group of a regular expression."""
    rule = {"http": {"paths": [{"path": path}]}}
    return {"metadata": {"annotations": {_REWRITE: "/$2"}}, "spec": {"rules": [rule]}}


def check_console(url: str, *, token: str, key: str) -> None:
    """Signs in at the console of an installation, and sends a request of a client. Other paths are not forwarded.

    Args:
        url: the address of `/console` and `/v1`, without them.
        token: the admin token.
        key: an API key.
    """
    page_headers = {"x-cornserve-console": "1", "origin": f"http://{HOST}"}
    credentials = {"authorization": f"Bearer {key}"}
    with httpx.Client(headers={"host": HOST}, timeout=60, trust_env=False) as browser:
        page = browser.get(f"{url}/console/")
        assert (page.status_code, page.headers["referrer-policy"]) == (200, "no-referrer")
        assert browser.get(f"{url}/console").headers["location"] == "console/"
        assert browser.get(f"{url}/console/admin/v1/overview").status_code == 401
        foreign = page_headers | {"origin": "http://other.example"}
        refused = browser.post(f"{url}/console/session", json={"token": token}, headers=foreign)
        assert (refused.status_code, refused.json()["error"]["code"]) == (403, "cross_site")
        signed_in = browser.post(f"{url}/console/session", json={"token": token}, headers=page_headers)
        assert signed_in.json()["role"] == "admin"
        assert browser.get(f"{url}/console/admin/v1/overview").status_code == 200
        assert browser.get(f"{url}/v1/models", headers=credentials).status_code == 200
        hidden = browser.get(f"{url}/admin/v1/apps", headers={"authorization": f"Bearer {token}"})
        assert (hidden.status_code, hidden.headers["server"].partition("/")[0]) == (404, "nginx")


def _location(path: str, target: str | None, url: str) -> str:
    if target is None:
        return f"location = {path} {{ proxy_pass {url}; }}\nlocation {path}/ {{ proxy_pass {url}; }}"
    return f'location ~* "^{path}" {{ rewrite "(?i){path}" {target} break; proxy_pass {url}; }}'


def _answers(address: str) -> bool:
    try:
        httpx.get(address, trust_env=False)
    except httpx.TransportError:
        return False
    return True
