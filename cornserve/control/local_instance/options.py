"""The options of a local instance."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from cornserve.access import Access, AccessError
from cornserve.browser_origins import BrowserOriginError, BrowserOrigins
from cornserve.control.launcher.local.slot_types import SlotType
from cornserve.gpu_prices import GpuPrices
from cornserve.home import Home
from cornserve.instance_secret import InstanceSecret, InstanceSecretError
from cornserve.limits import Limits
from cornserve.media_allowlist import MediaAllowlist
from cornserve.observe.log_format import LogFormat
from cornserve.pull_protocol import PullProtocol
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
    gpu_prices: GpuPrices = field(default_factory=GpuPrices)
    """The prices of GPUs and slots, in addition to those of `slot_types`."""
    prometheus: str | None = None
    """The address of the Prometheus server that scrapes the instance."""
    transport: PullProtocol = PullProtocol.AUTO
    """The protocol for tensors of other nodes."""

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
    def known_prices(self) -> GpuPrices:
        """The prices of GPUs and slots. Executors that select no type run on the slots of the only type.

        Raises `GpuPriceError` for a type with two prices.
        """
        slots = [f"{slot.name}={slot.price:f}" for slot in self.slot_types if slot.price is not None]
        if slots and len(self.slot_types) == 1 and not self.gpu_prices.by_type:
            slots.append(slots[0].rpartition("=")[2])
        return GpuPrices.parse([*slots, *self.gpu_prices.settings])

    @property
    def console_arguments(self) -> list[str]:
        """The command line arguments of `cornserve up` for the console and its figures."""
        arguments = [] if self.console else ["--no-console"]
        arguments += self.gpu_prices.cli_arguments
        return arguments if self.prometheus is None else [*arguments, "--prometheus", self.prometheus]

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
