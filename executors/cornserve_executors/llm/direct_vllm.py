"""Generates with vLLM's own `LLM.chat`, without Cornserve's executor. `cornserve models check` compares with it.

Reads a JSON object from standard input: `task`, the settings of an `LLMTask`, and `chats`, the bodies of OpenAI chats.
Writes a JSON object to the file given as the argument: `dtype`, and `outputs` with the tokens of each chat.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from cornserve_executors.vllm import settings
from cornserve_tasklib.llm import LLMTask


def main(file: Path) -> None:
    given = json.load(sys.stdin)
    task = LLMTask.model_validate(given["task"])
    settings.prepare_environment()
    from vllm import LLM

    engine = LLM(**settings.engine_args(task))
    outputs = [_output(engine, chat) for chat in given["chats"]]
    dtype = str(engine.model_config.dtype).removeprefix("torch.")
    file.write_text(json.dumps({"dtype": dtype, "outputs": outputs}))


def _output(engine: Any, chat: dict[str, Any]) -> dict[str, Any]:
    """Returns the tokens of a chat and their log probabilities, or the reason why vLLM refuses it."""
    from vllm import SamplingParams

    sampling = SamplingParams(temperature=0, max_tokens=chat["max_tokens"], ignore_eos=True, logprobs=1)
    try:
        (output,) = engine.chat(chat["messages"], sampling, use_tqdm=False)
    except ValueError as error:
        return {"error": str(error)}
    (choice,) = output.outputs
    tokens = list(choice.token_ids)
    return {
        "tokens": tokens,
        "logprobs": [found[token].logprob for token, found in zip(tokens, choice.logprobs, strict=True)],
    }


if __name__ == "__main__":
    main(Path(sys.argv[1]))
