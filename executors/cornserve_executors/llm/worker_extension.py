"""An extension of vLLM's workers."""

from __future__ import annotations

from typing import Any


class WorkerExtension:
    """Methods that vLLM adds to its workers (`worker_extension_cls`)."""

    get_model: Any

    def parameter_counts(self) -> dict[str, int]:
        """Returns the number of loaded parameters of each component of the model."""
        return {
            name: sum(parameter.numel() for parameter in component.parameters())
            for name, component in self.get_model().named_children()
        }
