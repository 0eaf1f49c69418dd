"""The command lines and the files of etcd, the API server, the controller manager and the scheduler."""

from __future__ import annotations

import json
import secrets
from base64 import b64encode
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from scripts.cluster.certificates import write_certificates
from scripts.cluster.programs import program

CONTEXT: Final = "cornserve-test"
"""The name of the context in kubeconfig files."""
SERVICE_NETWORK: Final = "10.96.0.0/16"
_API_SERVICE_ADDRESS: Final = "10.96.0.1"
_ETCD_SOCKET: Final = "unix://localhost:2379"  # a file with this name in the directory of the control plane
_PEER_SOCKET: Final = "unix://localhost:2380"


@dataclass(frozen=True)
class ControlPlaneFiles:
    """A control plane whose processes run in `directory` as their working directory."""

    directory: Path
    address: str
    port: int

    @property
    def server(self) -> str:
        return f"https://{self.address}:{self.port}"

    @property
    def ca_file(self) -> Path:
        return self.directory / "ca.crt"

    @property
    def admin_token(self) -> str:
        return self.token("admin")

    def token(self, user: str) -> str:
        """Returns the token of a user that `write` has created."""
        rows = (row.split(",") for row in (self.directory / "tokens.csv").read_text().splitlines())
        return next(token for token, name, *_ in rows if name == user)

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig file."""
        return self.directory / "kubeconfig"

    def write(self, users: dict[str, str] | None = None) -> None:
        """Writes certificates, keys, the administrator's kubeconfig, and tokens of the administrator and of `users`.

        Args:
            users: their groups by name.
        """
        write_certificates(self.directory, [self.address, _API_SERVICE_ADDRESS])
        groups = {"admin": "system:masters", **(users or {})}
        rows = [f"{secrets.token_hex(16)},{name},{name},{group}\n" for name, group in groups.items()]
        (self.directory / "tokens.csv").touch(0o600)
        (self.directory / "tokens.csv").write_text("".join(rows))
        self.write_kubeconfig(self.kubeconfig, self.admin_token)

    def write_kubeconfig(self, file: Path, token: str, namespace: str = "default") -> None:
        cluster = {
            "server": self.server,
            "certificate-authority-data": b64encode(self.ca_file.read_bytes()).decode(),
        }
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": CONTEXT, "cluster": cluster}],
            "users": [{"name": CONTEXT, "user": {"token": token}}],
            "contexts": [{"name": CONTEXT, "context": {"cluster": CONTEXT, "user": CONTEXT, "namespace": namespace}}],
            "current-context": CONTEXT,
        }
        file.touch(0o600)
        file.write_text(json.dumps(content, indent=2))

    def etcd(self) -> list[str]:
        """Returns the command of etcd. It listens on Unix sockets and does not wait for the disk."""
        return [
            str(program("etcd")),
            "--name=etcd",
            "--data-dir=etcd",
            f"--listen-client-urls={_ETCD_SOCKET}",
            f"--advertise-client-urls={_ETCD_SOCKET}",
            f"--listen-peer-urls={_PEER_SOCKET}",
            f"--initial-advertise-peer-urls={_PEER_SOCKET}",
            f"--initial-cluster=etcd={_PEER_SOCKET}",
            "--unsafe-no-fsync",
            "--log-level=warn",
        ]

    def api_server(self, *options: str) -> list[str]:
        """Returns the command of the API server, with RBAC and tokens of service accounts."""
        return [
            str(program("kube-apiserver")),
            f"--etcd-servers={_ETCD_SOCKET}",
            f"--bind-address={self.address}",
            f"--secure-port={self.port}",
            "--permit-port-sharing",
            "--tls-cert-file=server.crt",
            "--tls-private-key-file=server.key",
            "--token-auth-file=tokens.csv",
            "--authorization-mode=Node,RBAC",
            "--service-account-issuer=https://kubernetes.default.svc",
            "--service-account-key-file=sa.pub",
            "--service-account-signing-key-file=sa.key",
            f"--service-cluster-ip-range={SERVICE_NETWORK}",
            *options,
        ]

    def controller_manager(self) -> list[str]:
        return [
            str(program("kube-controller-manager")),
            f"--kubeconfig={self.kubeconfig}",
            "--service-account-private-key-file=sa.key",
            "--root-ca-file=ca.crt",
            "--use-service-account-credentials",
            "--leader-elect=false",
            "--secure-port=0",
        ]

    def scheduler(self) -> list[str]:
        return [
            str(program("kube-scheduler")),
            f"--kubeconfig={self.kubeconfig}",
            "--leader-elect=false",
            "--secure-port=0",
        ]
