"""Settings of tasks whose executors run a model with torch."""

from __future__ import annotations

from typing import ClassVar

from pydantic import BaseModel

from cornserve.task import ExecutorSpec
from cornserve_tasklib.hub import ModelId


class ModelSettings(BaseModel):
    """The model of a task. The other fields are options of its executor."""

    executor: ClassVar[str]

    model_id: ModelId
    """A Hugging Face id, or the absolute path of a model directory."""
    revision: str | None = None
    """The branch, tag or commit of the model's repository on Hugging Face. Defaults to its main branch."""

    def executor_spec(self) -> ExecutorSpec:
        unset = {"revision"} if self.revision is None else None
        config = self.model_dump(mode="json", exclude=unset)
        return ExecutorSpec(executor=self.executor, config=config, gpus=self.replica_gpus)

    @property
    def replica_gpus(self) -> int:
        """The GPUs of a replica. With 0, the model runs on the CPU."""
        raise NotImplementedError
