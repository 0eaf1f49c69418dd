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
        with self._explained():
            write_atomically(self.file(results.spec, results.conditions.device), results.model_dump_json(indent=1))

    def write_profile(self, app: str, device: str, text: str) -> Path:
        """Writes the planner's profile of an app, and returns its file. Raises `ProfileStoreError`."""
        file = self.path / "apps" / f"{app}-{device}.json"
        with self._explained():
            file.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(file, text)
        return file

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Raises a `ProfileStoreError` for an error of the file system."""
        try:
            yield
        except OSError as error:
            raise ProfileStoreError(f"cannot write to {self.path}: {error.strerror}: choose another --home") from error

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Excludes other profilers of the home during the block: they would disturb each other's measurements."""
        os.umask(PRIVATE_UMASK)
        with self._explained():
            self.path.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
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
