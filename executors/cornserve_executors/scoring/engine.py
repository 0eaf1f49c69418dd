"""Scores pairs of texts with vLLM."""

from __future__ import annotations

from typing import Any

from vllm.entrypoints.pooling.scoring.io_processor import CrossEncoderIOProcessor
from vllm.entrypoints.pooling.scoring.protocol import ScoreQueriesDocumentsRequest
from vllm.entrypoints.pooling.typing import ScoringRenderParams
from vllm.outputs import ScoringRequestOutput
from vllm.renderers.chat_utils import ChatTemplateConfig

from cornserve_executors.base import ExecutorStartError, InvalidRequestError
from cornserve_executors.vllm import settings
from cornserve_executors.vllm.engine import VllmEngine, translate_errors
from cornserve_executors.vllm.large_texts import LargeTexts
from cornserve_executors.vllm.pooling import check_truncation, pool
from cornserve_tasklib.scoring import ScoringRequest, ScoringResponse, ScoringTask


class ScoringEngine(VllmEngine):
    def __init__(self, config: ScoringTask) -> None:
        super().__init__(settings.engine_args(config) | {"runner": "pooling"})
        self._model_config = self._vllm.model_config
        labels = getattr(self._model_config.hf_config, "num_labels", None)
        if self._model_config.score_type != "cross-encoder" or labels != 1:
            raise ExecutorStartError(f"{config.model_id} is not a cross-encoder with one label: deploy another model")
        template = ChatTemplateConfig(chat_template=config.chat_template)
        self._processor = CrossEncoderIOProcessor(self._vllm.vllm_config, self._vllm.renderer, template)
        self._large_texts = LargeTexts()

    async def score(self, request: ScoringRequest, id: str) -> ScoringResponse:
        """Scores all pairs concurrently."""
        self._check_limits(request)
        with translate_errors():
            inputs = await self._render(request, id)
            outputs = await pool(self._vllm, ((given["prompts"], given["params"]) for given in inputs), id)
        return ScoringResponse(
            scores=[ScoringRequestOutput.from_base(output).outputs.score for output in outputs],
            prompt_tokens=sum(len(output.prompt_token_ids) for output in outputs),
        )

    def _check_limits(self, request: ScoringRequest) -> None:
        context = self._model_config.max_model_len
        check_truncation(request.truncate_prompt_tokens, context)
        for name in ("max_tokens_per_query", "max_tokens_per_doc"):
            if (limit := getattr(request, name)) >= context:
                raise InvalidRequestError(f"{name}: {limit} is not below the context length {context}: give less")

    async def _render(self, request: ScoringRequest, id: str) -> list[Any]:
        vllm_request = ScoreQueriesDocumentsRequest.model_validate(request.model_dump())
        tokenization = vllm_request.build_tok_params(self._model_config)
        params = vllm_request.to_pooling_params()
        params.verify(self._model_config)
        pairs = request.pairs

        async def render() -> list[Any]:
            return [
                await self._processor.render_async(
                    ScoringRenderParams(
                        data_1=query,
                        data_2=document,
                        chat_template=self._processor.chat_template,
                        max_tokens_per_query=request.max_tokens_per_query,
                        max_tokens_per_doc=request.max_tokens_per_doc,
                        tok_params=tokenization,
                        prompt_extras=None,
                        skip_mm_cache=True,
                        params=params.clone(),
                        lora_requests=None,
                        priorities=0,
                    )
                )
                for query, document in pairs
            ]

        characters = sum(len(query) + len(document) for query, document in pairs)
        return await self._large_texts.run(render, characters, owner=id)
