"""Classifies texts with vLLM."""

from __future__ import annotations

from vllm import PoolingParams
from vllm.entrypoints.pooling.classify.protocol import ClassificationCompletionRequest
from vllm.outputs import ClassificationOutput

from cornserve_executors.base import ExecutorStartError
from cornserve_executors.vllm import settings
from cornserve_executors.vllm.engine import VllmEngine, translate_errors
from cornserve_executors.vllm.large_texts import LargeTexts
from cornserve_executors.vllm.pooling import check_truncation, online_renderer, pool, tokenize
from cornserve_tasklib.classification import ClassificationRequest, ClassificationResponse, ClassificationTask


class ClassificationEngine(VllmEngine):
    def __init__(self, config: ClassificationTask) -> None:
        super().__init__(settings.engine_args(config) | {"runner": "pooling", "convert": "classify"})
        self._model_config = self._vllm.model_config
        if self._model_config.is_multimodal_model:
            raise ExecutorStartError(f"{config.model_id} reads media: deploy a classifier of texts")
        self._labels: dict[int, str] = getattr(self._model_config.hf_config, "id2label", None) or {}
        self._large_texts = LargeTexts()
        self._renderer = online_renderer(self._vllm)

    async def classify(self, request: ClassificationRequest, id: str) -> ClassificationResponse:
        check_truncation(request.truncate_prompt_tokens, self._model_config.max_model_len)
        with translate_errors():
            vllm_request = ClassificationCompletionRequest(
                input=request.input, truncate_prompt_tokens=request.truncate_prompt_tokens
            )
            prompts = await tokenize(self._renderer, vllm_request, request.input, self._large_texts, id)
            params = PoolingParams(task="classify", use_activation=request.use_activation)
            params.verify(self._model_config)
            outputs = await pool(self._vllm, ((prompt, params.clone()) for prompt in prompts), id)
        probs = [ClassificationOutput.from_base(output.outputs).probs for output in outputs]
        return ClassificationResponse(
            probs=probs,
            labels=[self._labels.get(max(range(len(values)), key=values.__getitem__)) for values in probs],
            prompt_tokens=sum(len(output.prompt_token_ids) for output in outputs),
        )
