"""Starts an instance in the background."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path
from typing import IO

from cornserve.atomic_files import check_writable
from cornserve.cli.console import CliError, stderr
from cornserve.control.local_instance.managed_process import ProcessSpec
from cornserve.control.local_instance.options import InstanceOptions
from cornserve.control.local_instance.supervisor import check_not_running
from cornserve.home import PRIVATE_UMASK
from cornserve.instance import Instance
from cornserve.observe.log_file import rotate
from cornserve.observe.logs import parse_messages


def start_detached(options: InstanceOptions) -> Instance:
    """Returns the instance when it is ready, after the supervisor's messages are printed.

    Raises `CliError` or `InstanceStartError` if it cannot start.
    """
    check_not_running(options.home)
    options.read_access()
    os.umask(PRIVATE_UMASK)
    command = [sys.executable, "-m", "cornserve.cli", "up", "--json"]
    command += ["--home", str(options.home.path), "--host", options.host, "--port", str(options.port)]
    command += ["--gateways", str(options.gateways)]
    command += [
        *options.slot_arguments,
        "--log-format",
        options.log_format,
        *(["--access-log"] if options.access_log else []),
        *options.console_arguments,
    ]
    command += [*options.secret_arguments, *options.limits.cli_arguments, *options.media_allowlist.cli_arguments]
    command += [*options.origins.cli_arguments, "--unknown-fields", options.unknown_fields]
    command += ["--transport", options.transport]
    if options.internal_tls is not None:
        command += ["--internal-tls", str(options.internal_tls.absolute())]
    program = ProcessSpec("supervisor", command, options.home.logs / "supervisor.log")
    with _open_log(program.log) as log:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, start_new_session=True
        )
    instance = _wait_until_ready(process, program)
    for line in program.log.read_text(errors="replace").splitlines():
        stderr().print(parse_messages(line)[0], markup=False, style="dim")
    return instance


def _open_log(log: Path) -> IO[bytes]:
    """Opens a new log. Raises `CliError`."""
    try:
        check_writable(log.parent)  # Errors of the supervisor would not reach the log.
        rotate(log)
        return log.open("ab")
    except OSError as error:
        full = error.errno == errno.ENOSPC
        remedy = "free space on its disk" if full else "choose another directory with --home"
        raise CliError(f"cannot write to {log.parent}: {error.strerror}: {remedy}") from error


def _wait_until_ready(process: subprocess.Popen[bytes], program: ProcessSpec) -> Instance:
    assert process.stdout is not None
    try:
        document = process.stdout.readline()
    except KeyboardInterrupt:
        process.terminate()
        process.wait()
        raise
    if not document:
        process.wait()
        raise CliError(
            program.last_log_line().removeprefix("error: ") or f"the supervisor exited with status {process.returncode}"
        )
    return Instance.model_validate_json(document)
