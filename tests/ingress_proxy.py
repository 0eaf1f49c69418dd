"""nginx in the place of an Ingress controller: it forwards requests by the rules of an Ingress."""

from __future__ import annotations

import subprocess
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from string import Template
from typing import Any, ClassVar, Final

import httpx2 as httpx

from tests.free_ports import free_port
from tests.programs import require_program
from tests.waiting import wait_until

HOST: Final = "corn.example"

PREFIX: Final = "/ml/corn"

_REWRITE: Final = "nginx.ingress.kubernetes.io/rewrite-target"

_MIDDLEWARES: Final = "traefik.ingress.kubernetes.io/router.middlewares"

PREFIX_VALUES: Final = {
    "enabled": True,
    "host": HOST,
    "paths": [f"{PREFIX}(/|$)((v1|console).*)"],
    "pathType": "ImplementationSpecific",
    "annotations": {"nginx.ingress.kubernetes.io/use-regex": "true", _REWRITE: "/$2"},
}
"""Values of the chart's `gateway.ingress` for clients and the console below a prefix, with ingress-nginx."""

STRIPPED_VALUES: Final = {
    "enabled": True,
    "host": HOST,
    "paths": [f"{PREFIX}/v1", f"{PREFIX}/console"],
    "annotations": {_MIDDLEWARES: "team-a-corn@kubernetescrd"},
}
"""The same for Traefik, with a middleware that removes the prefix."""

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
    proxy_buffering off;
    proxy_redirect off;
    map $$http_upgrade $$connection_upgrade {
        default upgrade;
        '' '';
    }
    map $$http_x_request_id $$req_id {
        default $$http_x_request_id;
        '' $$request_id;
    }
    server {
        listen 127.0.0.1:$port;
$headers
$locations
        location / { return 404; }
    }
}
""")


class IngressController(ABC):
    """The requests that an Ingress controller forwards, as configuration of nginx."""

    headers: ClassVar[Mapping[str, str]]
    """The headers that it sets."""

    def __init__(self, annotations: Mapping[str, str]) -> None:
        self._annotations = annotations

    @abstractmethod
    def location(self, path: str, path_type: str) -> tuple[Sequence[str], str]:
        """Returns the locations of a path of an Ingress, and the directive that rewrites it."""


class IngressNginx(IngressController):
    """The locations and headers of the `nginx.tmpl` of ingress-nginx."""

    headers: ClassVar[Mapping[str, str]] = {
        "Host": "$http_host",
        "Upgrade": "$http_upgrade",
        "Connection": "$connection_upgrade",
        "X-Request-ID": "$req_id",
        "X-Real-IP": "$remote_addr",
        "X-Forwarded-For": "$remote_addr",
        "X-Forwarded-Host": "$http_host",
        "X-Forwarded-Port": "$server_port",
        "X-Forwarded-Proto": "$scheme",
        "X-Forwarded-Scheme": "$scheme",
        "X-Scheme": "$scheme",
        "X-Original-Forwarded-For": "$http_x_forwarded_for",
        "Proxy": '""',
    }

    def location(self, path: str, path_type: str) -> tuple[Sequence[str], str]:
        if target := self._annotations.get(_REWRITE):
            return [f'~* "^{path}"'], f'rewrite "(?i){path}" {target} break;'
        match path_type:
            case "Prefix":
                return [f"= {path}", f"{path}/"], ""
            case "Exact":
                return [f"= {path}"], ""
            case _:
                return [path], ""


class Traefik(IngressController):
    """The matchers and headers of Traefik, with the middleware `stripPrefix` for `PREFIX`."""

    headers: ClassVar[Mapping[str, str]] = {
        "Host": "$http_host",
        "Connection": '""',
        "X-Real-Ip": "$remote_addr",
        "X-Forwarded-For": "$remote_addr",
        "X-Forwarded-Host": "$http_host",
        "X-Forwarded-Port": "$server_port",
        "X-Forwarded-Proto": "$scheme",
        "X-Forwarded-Server": "traefik",
    }

    def location(self, path: str, path_type: str) -> tuple[Sequence[str], str]:
        rewrite = f"rewrite ^{PREFIX}(/.*) $1 break;" if _MIDDLEWARES in self._annotations else ""
        return [f"= {path}" if path_type == "Exact" else path], rewrite


@contextmanager
def ingress_proxy(
    ingress: Mapping[str, Any], url: str, directory: Path, controller: type[IngressController] = IngressNginx
) -> Iterator[str]:
    """Starts nginx, which forwards the paths of an Ingress to a gateway as a controller does. Yields its address.

    Args:
        url: the address of the gateway.
    """
    program = require_program("nginx")
    port = free_port()
    [rule] = ingress["spec"]["rules"]
    rules = controller(ingress["metadata"].get("annotations", {}))
    lines = []
    for path in rule["http"]["paths"]:
        locations, rewrite = rules.location(path["path"], path["pathType"])
        lines += [f"location {location} {{ {rewrite} proxy_pass {url}; }}" for location in locations]
    headers = "\n".join(f"proxy_set_header {name} {value};" for name, value in rules.headers.items())
    configuration = directory / f"nginx-{port}.conf"
    values = {"directory": directory, "port": port, "headers": headers, "locations": "\n".join(lines)}
    configuration.write_text(_CONFIGURATION.substitute(values))
    address = f"http://127.0.0.1:{port}"
    with subprocess.Popen([program, "-c", str(configuration)]) as process:
        try:
            wait_until(lambda: _answers(address))
            yield address
        finally:
            process.terminate()


def rewriting_ingress(path: str) -> dict[str, Any]:
    """Returns the parts of an Ingress that forwards the second group of a regular expression."""
    rule = {"http": {"paths": [{"path": path, "pathType": "ImplementationSpecific"}]}}
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
        with browser.stream("GET", f"{url}/console/admin/v1/overview/events") as events:
            assert next(events.iter_lines()) == "event: overview"
        for id in ("..", "../apps", "a//b"):
            unknown = browser.get(f"{url}/console/admin/v1/requests/timeline", params={"id": id})
            assert unknown.json()["error"]["code"] == "request_not_found"
        assert browser.get(f"{url}/v1/models", headers=credentials).status_code == 200
        hidden = browser.get(f"{url}/admin/v1/apps", headers={"authorization": f"Bearer {token}"})
        assert (hidden.status_code, hidden.headers["server"].partition("/")[0]) == (404, "nginx")


def _answers(address: str) -> bool:
    try:
        httpx.get(address, trust_env=False)
    except httpx.TransportError:
        return False
    return True
