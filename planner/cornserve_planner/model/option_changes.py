"""The file that changes GPUs of a model's deployment options: those of a model that was derived from an app."""

from __future__ import annotations

import json
from typing import Any

from pydantic import Field

from cornserve_planner.errors import InvalidInputError
from cornserve_planner.files.document import Document, DocumentPart
from cornserve_planner.model.document import GpuCount, ModelDocument, Name


class OptionChange(DocumentPart):
    """Fields of an `OptionEntry` to replace. `tensor_parallel` replaces `gpus`."""

    gpus: GpuCount | None = None
    tensor_parallel: tuple[GpuCount, ...] | None = None
    gpu: Name | None = None


class OptionChanges(Document):
    """`format: cornserve-planner/options`.

    options:
      encoder: {gpu: L4}
      llm: {gpu: A100-80GB, tensor_parallel: [1, 2]}
    """

    kind = "options"

    options: dict[Name, OptionChange] = Field(min_length=1)

    def apply(self, model: ModelDocument) -> ModelDocument:
        """Returns the changed model. Raises `InvalidInputError` for an option that the model does not have."""
        document = json.loads(model.dump())
        for name, change in self.options.items():
            if name not in model.options:
                raise InvalidInputError(
                    f"options.{name}", f"is not an option of {model.name}: use one of {', '.join(model.options)}"
                )
            fields: dict[str, Any] = change.model_dump(mode="json", exclude_none=True)
            if "tensor_parallel" in fields:
                document["options"][name].pop("gpus")
            document["options"][name] |= fields
        return ModelDocument.parse(json.dumps(document), source=f"{model.name}.json")
