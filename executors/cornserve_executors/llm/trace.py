"""The engine's part of an invocation's trace, from the times that vLLM keeps of a request."""

from __future__ import annotations

from vllm.outputs import RequestOutput

from cornserve.observe import tracing


def tell(output: RequestOutput) -> None:
    """Of a request's last output; of several choices, the one that ended last."""
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
