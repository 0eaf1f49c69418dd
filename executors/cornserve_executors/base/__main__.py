"""Runs one executor replica: `python -m cornserve_executors.base --spec SPEC --listen HOST:PORT`.

SIGTERM drains: the executor serves its connected callers until they disconnect, then it exits.
"""

from __future__ import annotations

import argparse
import asyncio
import atexit
import glob
import os
import signal
import sys
from ipaddress import ip_network
from pathlib import Path
from typing import Any, NoReturn

import uvloop
from pydantic import ValidationError

from cornserve import concurrency
from cornserve.exit_status import CANNOT_START
from cornserve.file_limit import raise_file_limit
from cornserve.home import PRIVATE_UMASK
from cornserve.instance_secret import InstanceSecretError
from cornserve.limits import MIB
from cornserve.memory_limit import slab_limit_mib
from cornserve.observe import logs, tracing
from cornserve.pull_protocol import PullProtocol
from cornserve.task.spec import ExecutorSpec, find_executor
from cornserve.transport import AnnouncedPeers, NetworkPeers, PeerDirectory, Transport
from cornserve.validation_errors import describe_all
from cornserve.wire.credentials import ConnectionCredentials, TlsFilesError
from cornserve.wire.sockets import split_endpoint
from cornserve_executors.base import exit_reason
from cornserve_executors.base.executor import EngineDeadError, Executor, ExecutorStartError, TransientStartError
from cornserve_executors.base.init_process import leave_first_process
from cornserve_executors.base.server import ExecutorServer, ListenOptions

REQUEST_SHARE = 0.5
"""The share of the slab that one request may use. The same share is reserved for the oldest request."""

CACHE_SHARE = 0.25
"""The share of the slab that may cache tensors that no invocation needs at the moment."""


def main() -> int:
    options = _options()
    leave_first_process()
    os.umask(PRIVATE_UMASK)
    raise_file_limit()
    logs.configure()
    try:
        credentials = ConnectionCredentials.load(options.secret, options.tls)
        executor = _create(options.spec)
    except (InstanceSecretError, TlsFilesError) as error:
        exit_reason.report(str(error), options.termination_log)
        return CANNOT_START
    except ValidationError as error:
        problems = describe_all(error.errors())  # in one line: `cornserve deploy` shows the last line of the log
        message = f"invalid settings for the executor {options.spec.executor!r}: {problems}"
        exit_reason.report(message, options.termination_log)
        return CANNOT_START
    tracing.setup("cornserve-executor", os.environ.get(logs.REPLICA_VARIABLE))
    try:
        uvloop.run(_serve(executor, credentials, options))
    except ExecutorStartError as error:
        exit_reason.report(str(error), options.termination_log)
        return 1 if isinstance(error, TransientStartError) else CANNOT_START
    except EngineDeadError as error:
        exit_reason.report(f"the engine died: {error}", options.termination_log)
        return 1
    except Exception as error:
        exit_reason.report("the executor failed", options.termination_log, _without_base_frames(error))
        return 1
    finally:
        tracing.shutdown()
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="cornserve-executor", description=__doc__)
    parser.add_argument(
        "--spec", required=True, type=ExecutorSpec.model_validate_json, help="the executor spec as JSON"
    )
    parser.add_argument("--listen", default="127.0.0.1:0", metavar="HOST:PORT", help="port 0 is any free port")
    parser.add_argument("--secret", required=True, type=Path, metavar="FILE", help="the file of the instance's secret")
    parser.add_argument("--tls", type=Path, metavar="DIR", help="use TLS with tls.crt, tls.key and ca.crt")
    parser.add_argument("--announce", type=Path, metavar="FILE", help="write the endpoint to this file")
    peers = parser.add_mutually_exclusive_group()
    peers.add_argument(
        "--peers", metavar="PATTERN", help="consume tensors only of executors that announce an endpoint in these files"
    )
    peers.add_argument(
        "--peer-network",
        action="append",
        type=ip_network,
        metavar="CIDR",
        help="consume tensors only of executors with an address in this network and the port of --listen; repeatable",
    )
    parser.add_argument(
        "--transport",
        type=PullProtocol,
        choices=list(PullProtocol),
        default=PullProtocol.AUTO,
        help="the protocol for tensors of other nodes; TCP replaces one that does not work (default: %(default)s)",
    )
    parser.add_argument("--metrics-port", type=int, help="serve Prometheus metrics on this port; 0 is any free port")
    parser.add_argument("--health-port", type=int, help="serve gRPC health checks on this port")
    parser.add_argument(
        "--drain-seconds", type=float, default=30, help="how long SIGTERM waits for callers to disconnect"
    )
    parser.add_argument("--queue", type=int, default=1024, help="how many invocations run or wait at most")
    parser.add_argument(
        "--shared-memory", type=Path, default=Path("/dev/shm"), metavar="DIR", help="the directory of shared tensors"
    )
    parser.add_argument(
        "--termination-log",
        type=Path,
        default=exit_reason.TERMINATION_LOG,
        metavar="FILE",
        help="write the reason for a failure to this file if it exists, as in the containers of Kubernetes",
    )
    parser.add_argument(
        "--slab-mib", type=int, help="how much shared memory to use at most; by default, a share of the memory"
    )
    options = parser.parse_args()
    if options.peer_network and not split_endpoint(options.listen)[1]:
        parser.error("--peer-network needs a fixed port in --listen, such as 0.0.0.0:9000: executors share the port")
    return options


def _peers(options: argparse.Namespace) -> PeerDirectory:
    if options.peer_network:
        return NetworkPeers(options.peer_network, split_endpoint(options.listen)[1])
    return AnnouncedPeers(options.peers or glob.escape(str(options.announce or "")))


def _create(spec: ExecutorSpec) -> Executor[Any, Any, Any]:
    executor_type: type[Executor[Any, Any, Any]] = find_executor(spec.executor).load()
    return executor_type(executor_type.config_type.model_validate(spec.config))


def _without_base_frames(error: Exception) -> Exception:
    """Returns the error with a traceback that begins in the executor's own code."""
    base_paths = (str(Path(__file__).parent), str(Path(asyncio.__file__).parent), concurrency.__file__)
    traceback = error.__traceback__
    while traceback and traceback.tb_next and traceback.tb_frame.f_code.co_filename.startswith(base_paths):
        traceback = traceback.tb_next
    return error.with_traceback(traceback)


async def _serve(
    executor: Executor[Any, Any, Any], credentials: ConnectionCredentials, options: argparse.Namespace
) -> None:
    terminated = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, terminated.set)
    slab_bytes = (options.slab_mib or slab_limit_mib(options.shared_memory)) * MIB
    transport = Transport(
        options.shared_memory,
        credentials,
        slab_bytes=slab_bytes,
        request_bytes=int(slab_bytes * REQUEST_SHARE),
        cache_bytes=int(slab_bytes * CACHE_SHARE),
        peers=_peers(options),
        protocol=options.transport,
    )
    listen = ListenOptions(options.listen, options.announce, options.metrics_port, options.health_port)
    server = ExecutorServer(executor, transport, credentials, options.queue)
    await server.run(listen, terminated, options.drain_seconds)


def _exit(status: int) -> NoReturn:
    """Ends the process without freeing its modules one by one, which takes seconds after an engine has run."""
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


if __name__ == "__main__":
    _exit(main())
