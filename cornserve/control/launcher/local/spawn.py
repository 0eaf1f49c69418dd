"""Starts a replica's process in such a way that no crash of ours leaves one that nobody knows."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping

from cornserve.control.launcher.local.local_machine import LocalMachine
from cornserve.control.launcher.local.process_group import ProcessGroup
from cornserve.control.launcher.local.state_dir import ProcessRecord, ReplicaDir
from cornserve.observe.logs import REPLICA_VARIABLE
from cornserve.task.spec import ExecutorSpec

_GATE = 'read -r go && exec "$@" </dev/null'
"""Becomes the executor once it is told to. If we die before, its input ends, and so does it."""

_ALWAYS = {
    "PYTHONUNBUFFERED": "1",
    "SPT_NOENV": "1",  # A process that gives itself another title does not write it over its environment.
}


def spawn(
    folder: ReplicaDir,
    spec: ExecutorSpec,
    slots: tuple[str, ...],
    environment: Mapping[str, str],
    machine: LocalMachine,
) -> ProcessRecord:
    """Records the process, and only then lets it run."""
    with folder.log.open("ab") as log:
        gated = subprocess.Popen(
            ["/bin/sh", "-c", _GATE, "sh", *_command(folder, spec, machine)],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            env={**os.environ, **_ALWAYS, REPLICA_VARIABLE: folder.id, **environment},
            start_new_session=True,
        )
    try:
        process = ProcessRecord(spec=spec, slots=slots, leader=ProcessGroup.from_pid(gated.pid, replica=folder.id))
        folder.write_process(process)
        _open_gate(gated)
    except BaseException:
        gated.kill()
        gated.communicate()
        raise
    gated.returncode = 0  # `ProcessGroup` reaps it: the process may outlive this object, which would complain of that.
    return process


def _open_gate(gated: subprocess.Popen[bytes]) -> None:
    assert gated.stdin is not None
    with gated.stdin as gate:
        gate.write(b"go\n")


def _command(folder: ReplicaDir, spec: ExecutorSpec, machine: LocalMachine) -> list[str]:
    return [
        # -P: modules in the directory where Cornserve was started are none of the executor's.
        *(sys.executable, "-P", "-m", "cornserve_executors.base"),
        *("--spec", spec.model_dump_json()),
        *("--listen", "127.0.0.1:0", "--announce", str(folder.announcement), "--metrics-port", "0"),
        *("--drain-seconds", str(machine.drain_seconds), "--queue", str(machine.queue)),
        *("--shared-memory", str(machine.folders.segments), "--slab-mib", str(machine.slab_mib)),
    ]
