"""The options of a local instance."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from cornserve.access import Access, AccessError
from cornserve.browser_origins import BrowserOriginError, BrowserOrigins
from cornserve.control.launcher.local.slot_types import SlotType
from cornserve.home import Home
from cornserve.instance_secret import InstanceSecret, InstanceSecretError
from cornserve.limits import Limits
from cornserve.media_allowlist import MediaAllowlist
from cornserve.observe.log_format import LogFormat
from cornserve.unknown_field_policy import UnknownFields
from cornserve.wire.credentials import TlsContexts, TlsFilesError


class InstanceStartError(Exception):
    """The instance cannot run. The message is for users."""


@dataclass(frozen=True, slots=True)
class InstanceOptions:
    home: Home
    host: str = "127.0.0.1"
    port: int = 8000
    """0 selects a free port."""
    gateways: int = 1
    """Number of gateway processes that listen on the port."""
    gpus: int | None = None
    """Number of GPUs; None for all."""
    cpu_slots: int | None = None
    """Number of executors that may run without GPUs; None for the launcher's default."""
    slot_types: tuple[SlotType, ...] = ()
    """Types of slots that executors use in place of GPUs."""
    log_format: LogFormat = LogFormat.TEXT
    access_log: bool = False
    """Whether the gateway logs every request."""
    api_keys: Path | None = None
    admin_token: Path | None = None
    read_token: Path | None = None
    internal_tls: Path | None = None
    """The directory with the files for TLS between the instance's processes."""
    limits: Limits = field(default_factory=Limits)
    media_allowlist: MediaAllowlist = field(default_factory=MediaAllowlist)
    origins: BrowserOrigins = field(default_factory=BrowserOrigins)
    """The web pages that may call the gateway."""
    unknown_fields: UnknownFields = UnknownFields.REFUSE
    console: bool = True
    """Whether the gateways serve the web console."""

    def read_access(self) -> Access:
        """Reads the secrets. Raises `InstanceStartError` if they are invalid or do not suffice for the host."""
        try:
            access = Access.load(self.api_keys, self.admin_token, read_token=self.read_token)
            access.check_exposure(self.host)
            self.origins.check_access(access)
        except (AccessError, BrowserOriginError) as error:
            raise InstanceStartError(str(error)) from error
        return access

    def prepare_home(self) -> None:
        """Makes the home private, and creates the instance's secret. Raises `InstanceStartError` if it cannot."""
        try:
            self.home.create_private()
            InstanceSecret.load_or_create(self.home.secret)
            if self.internal_tls is not None:
                TlsContexts.load(self.internal_tls)
        except (InstanceSecretError, TlsFilesError) as error:
            raise InstanceStartError(str(error)) from error
        except OSError as error:
            raise InstanceStartError(
                f"cannot use {self.home.path}: {error.strerror}: choose another directory with --home"
            ) from error

    @property
    def slot_arguments(self) -> list[str]:
        """The command line arguments that limit the slots of executors."""
        counts = [("--gpus", self.gpus), ("--cpu-slots", self.cpu_slots)]
        types = [("--slots", slot_type) for slot_type in self.slot_types]
        return [part for flag, value in (*counts, *types) if value is not None for part in (flag, str(value))]

    @property
    def secret_arguments(self) -> list[str]:
        """The command line arguments that name the files with the secrets."""
        files = [
            ("--api-keys", self.api_keys),
            ("--admin-token", self.admin_token),
            ("--read-token", self.read_token),
        ]
        return [part for flag, file in files if file is not None for part in (flag, str(file.absolute()))]

    @property
    def tls_arguments(self) -> list[str]:
        """The command line arguments for TLS between the instance's processes."""
        return [] if self.internal_tls is None else ["--tls", str(self.internal_tls.absolute())]
