"""The base class of executors on vLLM."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

from prometheus_client import Metric

from cornserve_executors.base import Executor, ExecutorStartError, InvalidRequestError, ProgressReporter
from cornserve_executors.base.executor import Request, Result
from cornserve_executors.model_digest import model_digest
from cornserve_executors.vllm.engine_loader import EngineLoader
from cornserve_tasklib.engine import EngineSettings

if TYPE_CHECKING:
    from cornserve_executors.vllm.engine import VllmEngine

Settings = TypeVar("Settings", bound=EngineSettings)


class VllmExecutor(Executor[Settings, Request, Result]):
    """Loads, watches and stops a vLLM engine. A subclass imports, warms up and invokes it."""

    _engine: VllmEngine

    def __init__(self, config: Settings) -> None:
        super().__init__(config)
        self._loader = EngineLoader(self.import_engine)
        self._model_digest = ""

    @property
    def max_model_len(self) -> int:
        return self._engine.max_model_len if hasattr(self, "_engine") else 0

    @property
    def max_running(self) -> int:
        return self._engine.max_num_seqs if hasattr(self, "_engine") else 0

    @property
    def model_digest(self) -> str:
        return self._model_digest

    def import_engine(self) -> Callable[[Any], VllmEngine]:
        """Imports vLLM, which takes seconds, and returns the engine's constructor."""
        raise NotImplementedError

    async def warm_up(self) -> None:
        """Sends the first requests, so that vLLM completes its lazy initialization."""
        raise NotImplementedError

    async def start(self, report_progress: ProgressReporter) -> None:
        digest = await self._read_digest()
        self._engine = await self._loader.load(self.config, report_progress)
        if digest == await self._read_digest():  # No file has changed while the engine read it.
            self._model_digest = digest
        report_progress("warming up")
        try:
            await self.warm_up()
        except InvalidRequestError as error:
            raise ExecutorStartError(f"{self.config.model_id} failed on the first request: {error}") from error

    async def _read_digest(self) -> str:
        config = self.config
        adapters = config.options.lora_modules.values()
        return await asyncio.to_thread(model_digest, config.model_id, config.revision, adapters)

    async def wait_engine_death(self) -> str:
        return await self._engine.wait_death()

    def metrics(self) -> Iterable[Metric]:
        return self._engine.metrics() if hasattr(self, "_engine") else ()

    async def stop(self) -> None:
        await self._loader.abort()
