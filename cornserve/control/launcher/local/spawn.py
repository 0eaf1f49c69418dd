"""Starts the process of a replica so that a crash of the launcher leaves no unrecorded process."""

from __future__ import annotations

import os
import subprocess
import sys

from cornserve.control.launcher.local.executor_process import EXECUTOR_MODULE, SLOTS_VARIABLE
from cornserve.control.launcher.local.local_machine import LocalMachine
from cornserve.control.launcher.local.process_group import ProcessGroup
from cornserve.control.launcher.local.state_dir import ProcessRecord, ReplicaDir
from cornserve.instance_secret import InstanceSecret
from cornserve.observe.logs import REPLICA_VARIABLE
from cornserve.task.spec import ExecutorSpec

_WAIT_SCRIPT = 'read -r go && exec "$@" </dev/null'
"""Waits for a line on standard input and then becomes the executor. If the launcher dies first, the input ends and the
script exits."""

_ENVIRONMENT = {
    "PYTHONUNBUFFERED": "1",
    "SPT_NOENV": "1",  # Keeps `setproctitle` from overwriting the environment with the process title.
}


def spawn_executor(
    replica_dir: ReplicaDir,
    spec: ExecutorSpec,
    slots: tuple[str, ...],
    machine: LocalMachine,
) -> ProcessRecord:
    """Starts a waiting process on the cores of its slots, records it on disk, and then lets it become the executor."""
    InstanceSecret.load_or_create(machine.secret)
    with replica_dir.log.open("ab") as log:
        waiting = subprocess.Popen(
            ["/bin/sh", "-c", _WAIT_SCRIPT, "sh", *_command(replica_dir, spec, machine)],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            env={
                **os.environ,
                **_ENVIRONMENT,
                REPLICA_VARIABLE: replica_dir.id,
                SLOTS_VARIABLE: ",".join(slots),
                **machine.device_slots.environment(slots),
            },
            start_new_session=True,
        )
    try:
        group = ProcessGroup.from_pid(waiting.pid, replica=replica_dir.id)
        process = ProcessRecord(spec=spec, slots=slots, process_group=group)
        replica_dir.write_process(process)
        if cores := machine.device_slots.cores(slots):
            os.sched_setaffinity(waiting.pid, cores)
        _release(waiting)
    except BaseException:
        waiting.kill()
        waiting.communicate()
        raise
    waiting.returncode = 0  # `ProcessGroup` reaps the process. Without this, Popen warns that it still runs.
    return process


def _release(waiting: subprocess.Popen[bytes]) -> None:
    assert waiting.stdin is not None
    with waiting.stdin as stdin:
        stdin.write(b"go\n")


def _command(replica_dir: ReplicaDir, spec: ExecutorSpec, machine: LocalMachine) -> list[str]:
    return [
        # -P: the executor does not import modules from the current directory.
        *(sys.executable, "-P", "-m", EXECUTOR_MODULE),
        *("--spec", spec.model_dump_json()),
        *("--listen", "127.0.0.1:0", "--announce", str(replica_dir.addresses), "--metrics-port", "0"),
        *("--secret", str(machine.secret), *(("--tls", str(machine.tls)) if machine.tls else ())),
        *("--peers", machine.state_dir.addresses_pattern),
        *("--drain-seconds", str(machine.drain_seconds), "--queue", str(machine.queue)),
        *("--shared-memory", str(machine.state_dir.segments), "--slab-mib", str(machine.slab_mib)),
    ]
