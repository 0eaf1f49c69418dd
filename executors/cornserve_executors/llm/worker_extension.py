"""What is loaded of a model, asked for in the processes that run it."""

from __future__ import annotations

from typing import Any


class WorkerExtension:
    """vLLM makes it part of its workers (`worker_extension_cls`)."""

    get_model: Any

    def parameter_counts(self) -> dict[str, int]:
        """By component of the model. Those that are left out have none."""
        return {
            name: sum(parameter.numel() for parameter in component.parameters())
            for name, component in self.get_model().named_children()
        }
