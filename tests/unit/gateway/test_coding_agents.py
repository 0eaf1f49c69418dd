"""Requests in the shapes of Codex (`codex-rs/codex-api`, `codex-rs/protocol`) and of Claude Code are accepted."""

from __future__ import annotations

import json
from base64 import b64encode
from typing import Any

import httpx2 as httpx
import pytest_asyncio

from tests.unit.gateway.conftest import Deploy
from tests.unit.gateway.image_files import data_url, image_file
from tests.unit.gateway.sources import RELAY

OBJECT = {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}
PATCH = "*** Begin Patch\n*** Add File: a.txt\n+corn\n*** End Patch"
GRAMMAR = 'start: begin_patch hunk+ end_patch\nbegin_patch: "*** Begin Patch" LF'


@pytest_asyncio.fixture(scope="module", autouse=True, loop_scope="module")
async def relay(deploy_for_module: Deploy) -> None:
    await deploy_for_module(RELAY)


def text(role: str, *texts: str, kind: str = "input_text") -> dict[str, Any]:
    return {"type": "message", "role": role, "content": [{"type": kind, "text": each} for each in texts]}


async def test_a_turn_of_codex_is_streamed(gateway: httpx.AsyncClient) -> None:
    thought = [{"type": "summary_text", "text": "I look."}]
    image = {"type": "input_image", "image_url": data_url(image_file())}
    body = {
        "model": "relay",
        "instructions": "You are a coding agent.",
        "input": [
            text("developer", "<permissions instructions>sandbox</permissions instructions>"),
            text("user", "<environment_context><cwd>/repo</cwd></environment_context>"),
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Add a file."}, image]},
            {"type": "reasoning", "summary": thought, "content": None, "encrypted_content": "gAAAA"},
            {"type": "function_call", "name": "shell_command", "arguments": '{"command":"ls"}', "call_id": "call_1"},
            {"type": "function_call_output", "call_id": "call_1", "output": "Exit code: 0\nOutput:\n"},
            {"type": "function_call", "name": "view_image", "arguments": '{"path":"a.png"}', "call_id": "call_2"},
            {"type": "function_call_output", "call_id": "call_2", "output": [image]},
            {
                "type": "custom_tool_call",
                "status": "completed",
                "call_id": "call_3",
                "name": "apply_patch",
                "input": PATCH,
            },
            {"type": "custom_tool_call_output", "call_id": "call_3", "output": "Success."},
            text("assistant", "Done.", kind="output_text"),
            text("user", "Thanks."),
        ],
        "tools": [
            {
                "type": "function",
                "name": "shell_command",
                "description": "Runs.",
                "strict": False,
                "parameters": OBJECT,
            },
            {"type": "function", "name": "view_image", "description": "Shows.", "strict": False, "parameters": OBJECT},
            {
                "type": "custom",
                "name": "apply_patch",
                "description": "Use the `apply_patch` tool to edit files.",
                "format": {"type": "grammar", "syntax": "lark", "definition": GRAMMAR},
            },
        ],
        "tool_choice": "auto",
        "parallel_tool_calls": False,
        "reasoning": {"effort": "medium", "summary": "auto"},
        "store": False,
        "stream": True,
        "include": ["reasoning.encrypted_content"],
        "prompt_cache_key": "0199",
        "text": {"verbosity": "low"},
        "client_metadata": {"x-codex-installation-id": "0199"},
        "access_programs": {"cyber": "none"},
    }
    headers = {"originator": "codex_cli_rs", "session_id": "0199", "openai-beta": "responses=experimental"}

    response = await gateway.post("/v1/responses", json=body, headers={**headers, "accept": "text/event-stream"})

    events = [json.loads(line[6:]) for line in response.text.splitlines() if line.startswith("data: ")]
    assert events[-1]["type"] == "response.completed", response.text
    chat = json.loads(events[-1]["response"]["output"][0]["content"][0]["text"])
    roles = [message["role"] for message in chat["messages"]]
    assert roles == [*("system", "developer", "user", "user"), *("assistant", "tool") * 3, "assistant", "user"]
    assert [tool["function"]["name"] for tool in chat["tools"]] == ["shell_command", "view_image", "apply_patch"]


async def test_a_turn_of_claude_code_is_streamed(gateway: httpx.AsyncClient) -> None:
    cached = {"cache_control": {"type": "ephemeral"}}
    source = {"type": "base64", "media_type": "image/png", "data": b64encode(image_file()).decode()}
    read = {"type": "tool_use", "id": "toolu_1", "name": "Read", "input": {"command": "a.png"}}
    results = [
        {"type": "tool_result", "tool_use_id": "toolu_1", "content": [{"type": "image", "source": source}]},
        {"type": "text", "text": "<system-reminder>Be brief.</system-reminder>", **cached},
    ]
    body = {
        "model": "relay",
        "max_tokens": 32_000,
        "stream": True,
        "temperature": 1,
        "system": [
            {"type": "text", "text": "You are Claude Code.", **cached},
            {"type": "text", "text": "Use the tools.", **cached},
        ],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "What is in a.png?", **cached}]},
            {"role": "assistant", "content": [{"type": "thinking", "thinking": "I read.", "signature": "Eq"}, read]},
            {"role": "user", "content": results},
        ],
        "tools": [{"name": "Read", "description": "Reads.", "input_schema": OBJECT, **cached}],
        "metadata": {"user_id": "user_1_account__session_2"},
        "thinking": {"type": "adaptive"},
        "output_config": {"effort": "medium"},
        "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
        "speed": "standard",
    }
    headers = {"anthropic-version": "2023-06-01", "anthropic-beta": "claude-code-20250219", "x-api-key": "none"}

    response = await gateway.post("/v1/messages?beta=true", json=body, headers=headers)
    counted = {name: body[name] for name in ("model", "system", "messages", "tools", "thinking")}
    count = await gateway.post("/v1/messages/count_tokens?beta=true", json=counted, headers=headers)

    assert "event: message_stop" in response.text, response.text
    assert count.json() == {"input_tokens": 3}
    texts = [json.loads(line[6:]) for line in response.text.splitlines() if '"text_delta"' in line]
    chat = json.loads("".join(event["delta"]["text"] for event in texts))
    roles = [message["role"] for message in chat["messages"]]
    assert roles == ["system", "user", "assistant", "tool", "user", "user"]
