"""The life of an executor on vLLM."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

from prometheus_client import Metric

from cornserve_executors.base import Executor, ExecutorStartError, InvalidRequestError, ProgressReporter
from cornserve_executors.base.executor import Request, Result
from cornserve_executors.vllm.engine_loader import EngineLoader
from cornserve_tasklib.engine import EngineSettings

if TYPE_CHECKING:
    from cornserve_executors.vllm.engine import VllmEngine

Settings = TypeVar("Settings", bound=EngineSettings)


class VllmExecutor(Executor[Settings, Request, Result]):
    """A subclass says which engine it is, warms that up, and invokes it."""

    _engine: VllmEngine

    def __init__(self, config: Settings) -> None:
        super().__init__(config)
        self._loading = EngineLoader(self.import_engine)

    def import_engine(self) -> Callable[[Any], VllmEngine]:
        """Imports vLLM, which takes seconds, and returns what is called with the settings."""
        raise NotImplementedError

    async def warm_up(self) -> None:
        """Sends the first requests: they pay for lazy set-up all over vLLM."""
        raise NotImplementedError

    async def start(self, report_progress: ProgressReporter) -> None:
        self._engine = await self._loading.run(self.config, report_progress)
        report_progress("warming up")
        try:
            await self.warm_up()
        except InvalidRequestError as error:
            raise ExecutorStartError(f"{self.config.model_id} cannot answer a first request: {error}") from error

    async def wait_engine_death(self) -> str:
        return await self._engine.death()

    def metrics(self) -> Iterable[Metric]:
        return self._engine.metrics() if hasattr(self, "_engine") else ()

    async def stop(self) -> None:
        await self._loading.undo()
