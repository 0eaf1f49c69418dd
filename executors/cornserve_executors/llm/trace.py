"""Adds the engine's spans to an invocation's trace, from the timestamps that vLLM keeps for a request."""

from __future__ import annotations

from vllm.outputs import RequestOutput

from cornserve.observe import tracing


def record_engine_spans(output: RequestOutput) -> None:
    """Records the spans of a finished request. `output` is its last output; its timestamps are the last choice's."""
    times = output.metrics
    if tracing.current_span.get() is None or times is None:
        return
    tracing.record_child_span("queue", times.queued_ts, times.scheduled_ts)
    tracing.record_child_span("prefill", times.scheduled_ts, times.first_token_ts)
    tracing.record_child_span("decode", times.first_token_ts, times.last_token_ts)
    tracing.set_attributes(
        {
            "gen_ai.usage.input_tokens": len(output.prompt_token_ids or ()),
            "gen_ai.usage.output_tokens": times.num_generation_tokens,
        }
    )
