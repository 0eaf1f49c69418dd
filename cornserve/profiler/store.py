"""The store of profiles in a home: one file for each option and device."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from cornserve.atomic_files import IrregularFileError, read_regular_file, write_atomically
from cornserve.home import PRIVATE_UMASK, Home
from cornserve.profiler.errors import ProfilingError
from cornserve.profiler.results import OptionResults
from cornserve.task.spec import ExecutorSpec


class ProfileStoreError(ProfilingError):
    """The store cannot be used. The message is for users."""


@dataclass(frozen=True, slots=True)
class ProfileStore:
    path: Path

    @classmethod
    def of(cls, home: Home) -> ProfileStore:
        return cls(home.path / "profiles")

    def file(self, spec: ExecutorSpec, device: str) -> Path:
        return self.path / f"{spec.key}-{device}.json"

    def profile_file(self, app: str, device: str) -> Path:
        """Returns the file for the planner's profile of an app. Creates its directory."""
        directory = self.path / "apps"
        directory.mkdir(parents=True, exist_ok=True)
        return directory / f"{app}-{device}.json"

    def read(self, spec: ExecutorSpec, device: str) -> OptionResults | None:
        """Returns the results of an option, or None without any. Raises `ProfileStoreError` if they are damaged."""
        file = self.file(spec, device)
        try:
            return OptionResults.model_validate_json(read_regular_file(file))
        except FileNotFoundError:
            return None
        except (ValidationError, IrregularFileError) as error:
            raise ProfileStoreError(
                f"{file} is damaged or of another version: remove it, and measure the option again"
            ) from error
        except OSError as error:
            raise ProfileStoreError(f"cannot read {file}: {error.strerror}: make it readable") from error

    def write(self, results: OptionResults) -> None:
        try:
            write_atomically(self.file(results.spec, results.conditions.device), results.model_dump_json(indent=1))
        except OSError as error:
            raise ProfileStoreError(f"cannot write to {self.path}: {error.strerror}: choose another --home") from error

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Excludes other profilers of the home during the block: they would disturb each other's measurements."""
        os.umask(PRIVATE_UMASK)
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise ProfileStoreError(f"cannot write to {self.path}: {error.strerror}: choose another --home") from error
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise ProfileStoreError(
                    f"other measurements, of `cornserve profile` or of a controller, use {self.path}: wait until they "
                    "have ended, or stop them"
                ) from None
            yield
        finally:
            os.close(descriptor)
