"""Runs one executor replica: `python -m cornserve_executors.base --spec SPEC --listen HOST:PORT`.

The server listens before the model is loaded, so that whoever started the process can watch it start.
SIGTERM drains: no new invocations, those in flight finish, then the process exits.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from prometheus_client import start_http_server
from pydantic import ValidationError

from cornserve.task.spec import ExecutorSpec, find_executor
from cornserve.v1 import executor_pb2 as pb
from cornserve.v1 import executor_pb2_grpc
from cornserve_executors.base.executor import EngineDeadError, Executor, StartError
from cornserve_executors.base.metrics import Metrics
from cornserve_executors.base.service import ExecutorService
from cornserve_executors.base.state import State

log = logging.getLogger("cornserve.executor")

SERVICE = "cornserve.v1.Executor"
"""What the health service answers for; the empty name means the same."""


@dataclass(frozen=True, slots=True)
class Options:
    spec: ExecutorSpec
    listen: str
    announce: Path | None
    """Where to write the endpoint once it is known; for `--listen HOST:0`."""
    metrics_port: int | None
    drain_seconds: float


def main() -> int:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    options = _options()
    try:
        executor = _create(options.spec)
    except ValidationError as error:
        print(f"the settings do not fit the executor {options.spec.executor!r}: {_in_one_line(error)}", file=sys.stderr)
        return 2
    try:
        asyncio.run(serve(executor, options))
    except StartError as error:
        log.error("the executor did not start: %s", error)
        return 1
    except EngineDeadError as error:
        log.error("the engine died: %s", error)
        return 1
    except Exception:
        log.exception("the executor failed")
        return 1
    return 0


def _in_one_line(error: ValidationError) -> str:
    """The last line of the log is what whoever deploys is shown."""
    return "; ".join(f"{'.'.join(map(str, detail['loc']))}: {detail['msg']}" for detail in error.errors())


def _options() -> Options:
    parser = argparse.ArgumentParser(prog="cornserve-executor", description=__doc__)
    parser.add_argument("--spec", required=True, type=ExecutorSpec.model_validate_json, help="the executor spec, JSON")
    parser.add_argument("--listen", default="127.0.0.1:0", metavar="HOST:PORT", help="port 0: any free one")
    parser.add_argument("--announce", type=Path, metavar="FILE", help="write the endpoint to this file")
    parser.add_argument("--metrics-port", type=int, help="serve Prometheus metrics there; 0: any free port")
    parser.add_argument("--drain-seconds", type=float, default=30, help="how long SIGTERM waits for invocations")
    return Options(**vars(parser.parse_args()))


def _create(spec: ExecutorSpec) -> Executor[Any, Any, Any]:
    executor_type: type[Executor[Any, Any, Any]] = find_executor(spec.executor).load()
    return executor_type(executor_type.config_type.model_validate(spec.config))


async def serve(executor: Executor[Any, Any, Any], options: Options) -> None:
    """Serves until SIGTERM, or raises what the executor died of."""
    terminated = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, terminated.set)

    state = State()
    metrics = Metrics(executor.metrics)
    ready = health.aio.HealthServicer()
    server = grpc.aio.server(options=[("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)])
    executor_pb2_grpc.add_ExecutorServicer_to_server(ExecutorService(executor, state, metrics), server)
    health_pb2_grpc.add_HealthServicer_to_server(ready, server)
    await _set_health(ready, health_pb2.HealthCheckResponse.NOT_SERVING)
    host = options.listen.rpartition(":")[0]
    port = server.add_insecure_port(options.listen)
    await server.start()
    if options.metrics_port is not None:
        start_http_server(options.metrics_port, host, registry=metrics.registry)
    _announce(options.announce, f"{host}:{port}")
    try:
        starting = asyncio.create_task(executor.start(state.report))
        if not await _first(starting, terminated.wait()):
            return
        state.enter(pb.PHASE_READY)
        await _set_health(ready, health_pb2.HealthCheckResponse.SERVING)
        log.info("ready on %s:%d", host, port)
        died = asyncio.create_task(_death(executor, state))
        dead = await _first(died, terminated.wait())
        await _set_health(ready, health_pb2.HealthCheckResponse.NOT_SERVING)
        if dead:
            raise EngineDeadError(died.result())
        log.info("draining")
        state.enter(pb.PHASE_DRAINING)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(state.idle(), options.drain_seconds)
    finally:
        state.close()  # Observers would keep the server for all of the grace.
        await server.stop(grace=1)
        await executor.stop()


async def _death(executor: Executor[Any, Any, Any], state: State) -> str:
    """Returns, with the reason, when the engine has died: the executor saw it, or an invocation stumbled over it."""
    witnesses = [asyncio.create_task(executor.death()), asyncio.create_task(state.death())]
    try:
        done, _ = await asyncio.wait(witnesses, return_when=asyncio.FIRST_COMPLETED)
        state.engine_died(done.pop().result())
        return await state.death()
    finally:
        for witness in witnesses:
            witness.cancel()
        await asyncio.gather(*witnesses, return_exceptions=True)


async def _first(task: asyncio.Task[Any], other: Any) -> bool:
    """Waits for either; true if `task` came first (its error is raised), else `task` is cancelled."""
    waiter = asyncio.ensure_future(other)
    await asyncio.wait((task, waiter), return_when=asyncio.FIRST_COMPLETED)
    if task.done():
        waiter.cancel()
        task.result()
        return True
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return False


async def _set_health(servicer: Any, status: health_pb2.HealthCheckResponse.ServingStatus.ValueType) -> None:
    for service in ("", SERVICE):
        await servicer.set(service, status)


def _announce(file: Path | None, endpoint: str) -> None:
    if file is not None:
        partial = file.with_suffix(".partial")
        partial.write_text(endpoint)
        partial.rename(file)


if __name__ == "__main__":
    sys.exit(main())
