"""What is kept on disk of each replica: enough for a new launcher to go on after a crash.

`<home>/replicas/<id>/` holds the process, its endpoint and its log; of the replicas that ended last, the log is kept.
A folder without a process is one whose replica never ran.
"""

from __future__ import annotations

import logging
import shutil
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from cornserve.atomic_files import write_atomically
from cornserve.control.launcher.base import ReplicaId
from cornserve.control.launcher.local.process_group import ProcessGroup
from cornserve.control.launcher.local.shared_memory import SHARED_MEMORY, Note
from cornserve.control.launcher.local.tail import tail
from cornserve.observe.log_file import older
from cornserve.task.spec import ExecutorSpec
from cornserve.transport import reap

log = logging.getLogger(__name__)

KEPT_LOGS = 16


class ProcessRecord(BaseModel):
    """What `process.json` says."""

    model_config = ConfigDict(frozen=True)

    spec: ExecutorSpec
    slots: tuple[str, ...]
    leader: ProcessGroup


@dataclass(frozen=True, slots=True)
class ExecutorAddresses:
    """`host:port` of an executor's servers."""

    endpoint: str
    metrics: str | None = None


@dataclass(frozen=True, slots=True)
class ReplicaDir:
    path: Path

    @property
    def id(self) -> ReplicaId:
        return ReplicaId(self.path.name)

    @property
    def log(self) -> Path:
        return self.path / "log"

    @property
    def announcement(self) -> Path:
        """Where the executor writes its addresses."""
        return self.path / "endpoint"

    @property
    def shared_memory(self) -> Note:
        return Note(self.path / "shared-memory")

    @property
    def _process(self) -> Path:
        return self.path / "process.json"

    def read_process(self) -> ProcessRecord | None:
        try:
            return ProcessRecord.model_validate_json(self._process.read_bytes())
        except FileNotFoundError:
            return None
        except ValidationError:
            log.warning("%s is not readable, as after a power cut; its replica is forgotten", self._process)
            return None

    def write_process(self, process: ProcessRecord) -> None:
        write_atomically(self._process, process.model_dump_json())

    def read_addresses(self) -> ExecutorAddresses | None:
        try:
            return ExecutorAddresses(*self.announcement.read_text().splitlines())
        except FileNotFoundError:
            return None


@dataclass(frozen=True, slots=True)
class StateDir:
    path: Path

    @property
    def _ended(self) -> Path:
        return self.path / "ended"

    @property
    def segments(self) -> Path:
        """Where the replicas keep tensors for each other: in memory, and apart from those of other homes."""
        return SHARED_MEMORY / f"cornserve-{sha256(bytes(self.path)).hexdigest()[:16]}"

    def _reap_segments(self) -> None:
        """Those of dead processes go at once, and with the last one the directory."""
        if self.segments.is_dir():
            reap(self.segments)
            with suppress(OSError):  # Others are in it.
                self.segments.rmdir()

    def create(self, replica: ReplicaId) -> ReplicaDir:
        folder = ReplicaDir(self.path / replica)
        folder.path.mkdir(parents=True)
        return folder

    def find(self) -> list[tuple[ReplicaDir, ProcessRecord]]:
        """The replicas that there are, oldest first; what never ran is removed."""
        if not self.path.is_dir():
            return []
        found = []
        for folder in (ReplicaDir(path) for path in self.path.iterdir() if path != self._ended):
            process = folder.read_process()
            if process is None:
                shutil.rmtree(folder.path)
            else:
                found.append((folder, process))
        return sorted(found, key=lambda replica: replica[1].leader.started)

    def retire(self, folder: ReplicaDir) -> None:
        """Removes a folder but keeps its log, and of these the latest. May be repeated, if a crash came between."""
        folder.shared_memory.unlink_all()
        self._reap_segments()
        self._ended.mkdir(exist_ok=True)
        kept = self._ended / f"{folder.id}.log"
        for log, to in ((folder.log, kept), (older(folder.log), older(kept))):
            with suppress(FileNotFoundError):
                log.rename(to)
        shutil.rmtree(folder.path)
        with suppress(FileNotFoundError):  # Another replica that is retired at the same time does the same.
            logs = sorted(self._ended.glob("*.log"), key=lambda log: log.stat().st_mtime)
            for log in logs[:-KEPT_LOGS]:
                older(log).unlink(missing_ok=True)
                log.unlink()

    def logs(self, replica: ReplicaId, lines: int) -> list[str]:
        if Path(replica).name != replica:
            return []  # Ids come from users; this one would lead out of here.
        for log in (ReplicaDir(self.path / replica).log, self._ended / f"{replica}.log"):
            with suppress(FileNotFoundError):
                return tail(log, lines)
        return []
