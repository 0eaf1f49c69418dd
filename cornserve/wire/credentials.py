"""Credentials for the connections between the processes of an instance."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Self

from cornserve.instance_secret import InstanceSecret
from cornserve.reloaded_files import ReloadedFiles

TLS_FILES = ("tls.crt", "tls.key", "ca.crt")


class TlsFilesError(ValueError):
    """The files for TLS cannot be used. The message is for users."""


@dataclass(frozen=True, slots=True)
class TlsContexts:
    """Both ends present a certificate that the instance's authority has signed. Host names are not compared."""

    connecting: ssl.SSLContext
    accepting: ssl.SSLContext

    @classmethod
    def load(cls, directory: Path) -> Self:
        """Reads the files. Raises `TlsFilesError` if they cannot be used."""
        try:
            return cls(
                _context(ssl.PROTOCOL_TLS_CLIENT, directory),
                _context(ssl.PROTOCOL_TLS_SERVER, directory),
            )
        except OSError as error:  # `ssl.SSLError` is one
            raise TlsFilesError(
                f"cannot use tls.crt, tls.key and ca.crt in {directory} for TLS: {error.strerror or error}"
            ) from error


def _context(protocol: int, directory: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_cert_chain(directory / "tls.crt", directory / "tls.key")
    context.load_verify_locations(directory / "ca.crt")
    return context


class TlsFiles:
    """The certificates in a directory. They are read again when they change.

    Raises `TlsFilesError` if they cannot be used.
    """

    def __init__(self, directory: Path) -> None:
        files = [directory / name for name in TLS_FILES]
        self._contexts = ReloadedFiles(partial(TlsContexts.load, directory), files, TlsFilesError, "certificates")

    def contexts(self) -> TlsContexts:
        """Returns the contexts for a new connection. Established connections keep their certificates."""
        return self._contexts.current()


@dataclass(frozen=True, slots=True)
class ConnectionCredentials:
    """The instance's secret, which all connections require, and optionally TLS."""

    secret: InstanceSecret
    tls: TlsFiles | None = None

    @classmethod
    def load(cls, secret: Path, tls: Path | None = None) -> Self:
        """Reads the file of the secret and the directory with the files for TLS.

        Raises:
            InstanceSecretError: the secret cannot be used.
            TlsFilesError: the files for TLS cannot be used.
        """
        return cls(InstanceSecret.load(secret), TlsFiles(tls) if tls else None)
