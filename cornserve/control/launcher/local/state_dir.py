"""The directories of replicas, from which a new launcher restores its state after a crash.

`<home>/replicas/<id>/` contains the process record, the addresses and the log of a replica, and whether it has started.
A directory without a process record belongs to a replica that never ran. `<home>/replicas/ended/` contains the logs of
recently stopped replicas.
"""

from __future__ import annotations

import glob
import logging
import re
import shutil
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Self

from pydantic import BaseModel, ConfigDict, ValidationError

from cornserve.atomic_files import IrregularFileError, check_writable, read_regular_file, write_atomically
from cornserve.control.launcher.base import ReplicaId
from cornserve.control.launcher.local.leaked_shared_memory import SHARED_MEMORY, SharedMemoryRecord
from cornserve.control.launcher.local.lost_process import find_executor_process
from cornserve.control.launcher.local.process_group import ProcessGroup
from cornserve.control.launcher.local.replica_ids import group_of
from cornserve.control.launcher.local.tail import tail
from cornserve.observe.log_file import rotated_path
from cornserve.task.spec import ExecutorSpec

log = logging.getLogger(__name__)

KEPT_LOGS = 16

_ADDRESS = re.compile(r"[!-~]+:\d{1,5}")


class ProcessRecord(BaseModel):
    """The content of `process.json`."""

    model_config = ConfigDict(frozen=True)

    spec: ExecutorSpec
    slots: tuple[str, ...]
    process_group: ProcessGroup


@dataclass(frozen=True, slots=True)
class ExecutorAddresses:
    """`host:port` of an executor's servers."""

    endpoint: str
    metrics: str | None = None

    @classmethod
    def parse(cls, text: str) -> Self:
        """Raises `ValueError`."""
        lines = text.splitlines()
        if not 1 <= len(lines) <= 2 or not all(_ADDRESS.fullmatch(line) for line in lines):
            raise ValueError("does not contain one or two addresses")
        return cls(*lines)


class InvalidAddressesError(Exception):
    """The file with an executor's addresses is damaged."""


@dataclass(frozen=True, slots=True)
class ReplicaDir:
    """The directory of one replica."""

    path: Path

    @property
    def id(self) -> ReplicaId:
        return ReplicaId(self.path.name)

    @property
    def log(self) -> Path:
        return self.path / "log"

    @property
    def addresses(self) -> Path:
        """The file to which the executor writes its addresses."""
        return self.path / "endpoint"

    @property
    def shared_memory(self) -> SharedMemoryRecord:
        return SharedMemoryRecord(self.path / "shared-memory")

    @property
    def has_started(self) -> bool:
        """Whether a launcher has recorded that the replica was ready."""
        return self._started.exists()

    def record_start(self) -> None:
        """Records that the replica was ready: a later launcher does not wait for it as for a loading replica."""
        self._started.touch()

    @property
    def _started(self) -> Path:
        return self.path / "started"

    @property
    def _process(self) -> Path:
        return self.path / "process.json"

    def read_process(self) -> ProcessRecord | None:
        try:
            return ProcessRecord.model_validate_json(read_regular_file(self._process))
        except FileNotFoundError:
            return None
        except (IrregularFileError, ValidationError):
            log.warning("%s is damaged, for example after a power failure", self._process)
            return None

    def write_process(self, process: ProcessRecord) -> None:
        write_atomically(self._process, process.model_dump_json())

    def read_addresses(self) -> ExecutorAddresses | None:
        """Raises `InvalidAddressesError`."""
        try:
            return ExecutorAddresses.parse(read_regular_file(self.addresses).decode())
        except FileNotFoundError:
            return None
        except (IrregularFileError, ValueError) as error:
            raise InvalidAddressesError(f"its file {self.addresses} is damaged: {error}") from error


def held_slots(replicas: Path, groups: Collection[str] | None = None) -> set[str]:
    """Returns the slots that replicas hold: their directories tell it, as they tell it to a new launcher.

    Args:
        groups: the keys of the executor groups whose replicas count; by default, those of all.
    """
    found = sorted(replicas.iterdir()) if replicas.is_dir() else ()
    directories = found if groups is None else [path for path in found if group_of(ReplicaId(path.name)) in groups]
    records = (ReplicaDir(path).read_process() for path in directories)
    return {slot for record in records if record is not None for slot in record.slots}


@dataclass(frozen=True, slots=True)
class StateDir:
    """The directory that contains the directories of all replicas of a home."""

    path: Path

    @property
    def _ended(self) -> Path:
        return self.path / "ended"

    @property
    def segments(self) -> Path:
        """The directory in shared memory for the tensors that the replicas of this home exchange."""
        return SHARED_MEMORY / f"cornserve-{sha256(bytes(self.path)).hexdigest()[:16]}"

    @property
    def addresses_pattern(self) -> str:
        """The glob pattern of the files to which the executors of this home write their addresses."""
        return str(ReplicaDir(Path(glob.escape(str(self.path))) / "*").addresses)

    def _reap_segments(self) -> None:
        """Removes the segments of dead processes, and the directory if it is empty."""
        if self.segments.is_dir():
            from cornserve.transport import reap  # a slow import, which `cornserve status` does not need

            reap(self.segments)
            with suppress(OSError):  # It contains segments of other replicas.
                self.segments.rmdir()

    def find_problem(self) -> str:
        """Returns why no replica can start, for example because the disk is full, or an empty text."""
        try:
            check_writable(self.path)
        except OSError as error:
            disk = next(path for path in (self.path, *self.path.parents) if path.is_mount())
            return f"cannot start: cannot write to {self.path}, on the disk {disk}: {error.strerror}"
        return ""

    def create_replica_dir(self, replica: ReplicaId) -> ReplicaDir:
        replica_dir = ReplicaDir(self.path / replica)
        replica_dir.path.mkdir(parents=True)
        return replica_dir

    def find_replicas(self) -> list[tuple[ReplicaDir, ProcessRecord]]:
        """Returns the recorded replicas, oldest first, and removes the directories of replicas that never ran."""
        if not self.path.is_dir():
            return []
        found = []
        for replica_dir in (ReplicaDir(path) for path in self.path.iterdir() if path != self._ended):
            process = replica_dir.read_process() or self._recover_process(replica_dir)
            if process is None:
                shutil.rmtree(replica_dir.path, ignore_errors=True)
            else:
                found.append((replica_dir, process))
        return sorted(found, key=lambda replica: replica[1].process_group.started)

    def _recover_process(self, replica_dir: ReplicaDir) -> ProcessRecord | None:
        """Restores a missing or damaged process record, if the replica runs, from the process table."""
        found = find_executor_process(replica_dir.id)
        if found is None:
            return None
        process = ProcessRecord(spec=found.spec, slots=found.slots, process_group=found.process_group)
        log.warning("the process record of replica %s has been restored from its process", replica_dir.id)
        with suppress(OSError):
            replica_dir.write_process(process)
        return process

    def archive(self, replica_dir: ReplicaDir) -> None:
        """Removes the directory of a stopped replica and keeps its log, up to `KEPT_LOGS` logs.

        Safe to repeat after a crash. If it fails, for example on a read-only file system, the next launcher repeats it.
        """
        try:
            replica_dir.shared_memory.unlink_all()
            self._reap_segments()
            self._move_log(replica_dir)
        except OSError as error:
            log.warning("cannot keep the log of replica %s: %s", replica_dir.id, error)
        shutil.rmtree(replica_dir.path, ignore_errors=True)

    def _move_log(self, replica_dir: ReplicaDir) -> None:
        self._ended.mkdir(exist_ok=True)
        kept = self._ended / f"{replica_dir.id}.log"
        for source, target in ((replica_dir.log, kept), (rotated_path(replica_dir.log), rotated_path(kept))):
            with suppress(FileNotFoundError):
                source.rename(target)
        with suppress(FileNotFoundError):  # Another thread archives a replica at the same time.
            logs = sorted(self._ended.glob("*.log"), key=lambda log: log.stat().st_mtime)
            for expired in logs[:-KEPT_LOGS]:
                rotated_path(expired).unlink(missing_ok=True)
                expired.unlink()

    def kill(self, replica: ReplicaId) -> bool:
        """Kills the leader of a replica, which its launcher then replaces. Returns whether it ran."""
        if not _is_name(replica):
            return False
        process = ReplicaDir(self.path / replica).read_process()
        return process is not None and process.process_group.kill_leader()

    def logs(self, replica: ReplicaId, lines: int) -> list[str]:
        if not _is_name(replica):
            return []
        for path in (ReplicaDir(self.path / replica).log, self._ended / f"{replica}.log"):
            with suppress(FileNotFoundError):
                return tail(path, lines)
        return []


def _is_name(replica: ReplicaId) -> bool:
    """Whether an id, which users choose, does not lead to another directory."""
    return Path(replica).name == replica != ".."
