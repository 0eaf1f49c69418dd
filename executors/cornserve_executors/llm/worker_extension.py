"""An extension of vLLM's workers."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from vllm.lora.request import LoRARequest

from cornserve_executors.llm.adapter_check import check_adapter
from cornserve_executors.llm.hidden_states import take_states
from cornserve_executors.llm.kv_cache_connector import HandOverConnector, KvTarget, kv_cache_connector


class WorkerExtension:
    """Methods that vLLM adds to its workers (`worker_extension_cls`)."""

    get_model: Any
    add_lora: Any
    model_runner: Any

    def parameter_counts(self) -> dict[str, int]:
        """Returns the number of loaded parameters of each component of the model."""
        return {
            name: sum(parameter.numel() for parameter in component.parameters())
            for name, component in self.get_model().named_children()
        }

    def load_adapter(self, name: str, number: int, directory: str) -> str:
        """Loads a LoRA adapter. Returns the reason if the model cannot apply all of it, else an empty text."""
        request = LoRARequest(name, number, directory)
        try:
            check_adapter(self.model_runner.lora_manager, request)
            self.add_lora(request)
        except Exception as error:  # The engine would end, or not respond.
            return " ".join(str(error).split()) or type(error).__name__
        return ""

    def kv_format(self) -> dict[str, Any] | None:
        """Returns the fields of the `KvFormat` of this engine, or None if its KV cache cannot be saved."""
        connector = kv_cache_connector()
        if isinstance(connector, HandOverConnector) and not connector.is_usable:
            return None
        return asdict(connector.format())

    def save_running_kv(self, id: str, target: dict[str, Any]) -> None:
        """Saves the KV cache of a running request in the memory of a `KvTarget`, and sends a message."""
        kv_cache_connector().save_running(id, KvTarget(**target))

    def end_kv_save(self, target: dict[str, Any]) -> None:
        """Sends a message when nothing writes to the memory of a `KvTarget` any more."""
        kv_cache_connector().end_save(KvTarget(**target))

    def take_hidden_states(self, key: str) -> bytes:
        """Returns the hidden states that a request has named `key`, and forgets them."""
        return take_states(key)
