"""Starts the process of a replica so that a crash of the launcher leaves no unrecorded process."""

from __future__ import annotations

import os
import sys

from cornserve.control.launcher.local.executor_environment import executor_environment
from cornserve.control.launcher.local.local_machine import LocalMachine
from cornserve.control.launcher.local.lost_process import EXECUTOR_MODULE, SLOTS_VARIABLE
from cornserve.control.launcher.local.process_group import ProcessGroup
from cornserve.control.launcher.local.state_dir import ProcessRecord, ReplicaDir
from cornserve.control.launcher.local.waiting_process import WaitingProcess
from cornserve.control.launcher.local.warm_process import WarmProcess
from cornserve.instance_secret import InstanceSecret
from cornserve.observe.logs import REPLICA_VARIABLE
from cornserve.task.spec import ExecutorSpec


def spawn_executor(
    replica_dir: ReplicaDir,
    spec: ExecutorSpec,
    slots: tuple[str, ...],
    machine: LocalMachine,
    warm: WarmProcess | None,
) -> ProcessRecord:
    """Starts a waiting process on the cores of its slots, records it on disk, and then lets it become the executor.

    Args:
        warm: a process from which the executor is forked. Without one, its engine is imported again. Raises
            `WarmProcessError` if it fails.
    """
    InstanceSecret.load_or_create(machine.secret)
    command = _command(replica_dir, spec, machine)
    variables = {REPLICA_VARIABLE: replica_dir.id, SLOTS_VARIABLE: ",".join(slots)}
    with replica_dir.log.open("ab") as log:
        if warm is None:
            environment = executor_environment(machine.device_slots, slots) | variables
            waiting = WaitingProcess.start(command, environment, log)
        else:
            waiting = WaitingProcess.fork(warm, command, variables, log)
    try:
        group = ProcessGroup.from_pid(waiting.pid, replica=replica_dir.id)
        process = ProcessRecord(spec=spec, slots=slots, process_group=group)
        replica_dir.write_process(process)
        if cores := machine.device_slots.cores(slots):
            os.sched_setaffinity(waiting.pid, cores)
        waiting.release()
    except BaseException:
        waiting.kill()
        raise
    return process


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
        *("--transport", machine.transport),
    ]
