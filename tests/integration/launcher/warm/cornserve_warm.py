"""An executor whose engine remembers the process that has imported it, and engines that cannot be imported."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from typing import NoReturn

import setproctitle
from pydantic import BaseModel

from cornserve import Output
from cornserve_executors.base import Executor, InvocationContext, ProgressReporter

TITLE = "VLLM::EngineCore"

imported_by: list[int] = []


class WarmRequest(BaseModel):
    pass


class WarmExecutor(Executor[WarmRequest, WarmRequest, Output]):
    async def start(self, report_progress: ProgressReporter) -> None:
        engine = os.fork()
        if not engine:
            run_engine()
        print(f"engine {engine}", flush=True)
        print(f"imported by {imported_by}", flush=True)

    async def invoke(self, request: WarmRequest, context: InvocationContext) -> Output:
        return Output()


def run_engine() -> NoReturn:
    setproctitle.setproctitle(TITLE)
    while True:
        signal.pause()


def import_engine() -> None:
    imported_by.append(os.getpid())
    os.environ["OMP_NUM_THREADS"] = "7"


def fail() -> None:
    sys.exit("libnuma is missing")


def stop() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def start_thread() -> None:
    threading.Thread(target=time.sleep, args=[1000], daemon=True).start()
