from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from base64 import b64encode
from contextlib import closing
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cornserve import __version__
from cornserve.app.settings import MAX_REPLICAS
from cornserve.cli.audio_format import replaced_file
from cornserve.cli.commands import app
from cornserve.client import ResponseTimeoutError
from cornserve.client.arguments import MAX_SECONDS
from cornserve.control.store.sqlite_schema import create_database
from tests.fake_time import FakeTime
from tests.unit.gateway.sources import ECHO
from tests.unit.http_server import StubResponse, StubServer, audio_response, json_response, sse_response

COMMANDS = [
    "up",
    "down",
    "doctor",
    "deploy",
    "scale",
    "wait",
    "restart",
    "status",
    "chat",
    "transcribe",
    "imagine",
    "demo",
    "speak",
    "invoke",
    "try",
    "bench",
    "logs",
    "delete",
    "plan",
]

UNREACHABLE = "http://127.0.0.1:9"
SLOW_IMPORTS = {
    "pydantic",
    "pydantic_core",
    "httpx",
    "httpx2",
    "grpc",
    "fastapi",
    "asyncio",
    "psutil",
    "aiohttp",
    "uvloop",
    "rich",
}
SLOW_IMPORTS |= {"numpy", "pulp", "highspy", "matplotlib", "yaml", "kubernetes"}


def test_the_version_is_printed(cli: CliRunner) -> None:
    assert cli.invoke(app, ["--version"]).stdout == f"cornserve {__version__}\n"


def test_the_help_lists_all_commands(cli: CliRunner) -> None:
    text = cli.invoke(app, ["--help"]).stdout
    assert all(command in text for command in COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_examples_and_the_option_json(cli: CliRunner, command: str) -> None:
    text = cli.invoke(app, [*(["plan", "model"] if command == "plan" else [command]), "--help"]).stdout
    assert f"$ cornserve {command}" in text
    assert "--json" in text


@pytest.mark.parametrize(
    ("command", "groups"),
    [
        (["deploy"], ["Options", "App", "Model", "Load and latency", "Budget", "Inputs", "Targets"]),
        (["plan", "model"], ["Options", "Budget", "Inputs", "Targets", "Solver", "Output"]),
        (["bench"], ["Options", "Load", "Requests"]),
        (["simulate"], ["Options", "Inputs", "Gateways", "Targets", "Transfers", "Replicas that start and stop"]),
        (["up"], ["Options", "Network", "Access", "GPUs and slots", "Requests", "Observation"]),
    ],
)
def test_the_options_of_large_commands_are_grouped(cli: CliRunner, command: list[str], groups: list[str]) -> None:
    _, *panels = cli.invoke(app, [*command, "--help"]).stdout.split("╭─ ")
    options = {panel.partition(" ─")[0]: panel.count("│ --") for panel in panels}
    options.pop("Arguments", None)
    assert sorted(options) == sorted(groups)
    assert max(options.values()) <= 12


def test_options_have_the_same_bounds_as_specs_and_clients(cli: CliRunner) -> None:
    """The commands repeat the bounds, so that they need no slow imports."""
    deploy, scale = (cli.invoke(app, [command, "--help"]).stdout for command in ("deploy", "scale"))
    assert f"[1<=x<={MAX_REPLICAS}]" in deploy
    assert f"[0<=x<={MAX_REPLICAS}]" in scale
    assert "--routing POLICY" in " ".join(deploy.split())
    assert all(f"[0<=x<={MAX_SECONDS:.0f}]" in text for text in (deploy, scale))


def test_the_help_needs_no_slow_imports() -> None:
    code = "import cornserve.cli, sys; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert SLOW_IMPORTS.isdisjoint(loaded)


def test_the_slots_of_an_instance_are_read_without_the_data_plane() -> None:
    code = "import cornserve.control.launcher.local.state_dir, sys; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert {"cornserve.transport", "cornserve.control.launcher.local.launcher"}.isdisjoint(loaded)


@pytest.mark.parametrize(
    "arguments",
    [
        ["status"],
        ["status", "a"],
        ["logs", "a"],
        ["status", "a", "--events"],
        ["restart", "a"],
        ["delete", "a"],
        ["invoke", "a", "{}"],
        ["chat", "a", "Hello!"],
        ["bench", "a"],
    ],
)
def test_an_unreachable_gateway_is_reported_in_one_line(cli: CliRunner, arguments: list[str]) -> None:
    result = cli.invoke(app, [*arguments, "--url", UNREACHABLE])
    assert result.exit_code == 1
    assert result.stderr == (
        f"error: cannot connect to Cornserve at {UNREACHABLE}: start it with `cornserve up`, or set CORNSERVE_URL\n"
    )


@pytest.mark.parametrize("arguments", [["status"], ["invoke", "a", "{}"], ["chat", "a", "Hello!"], ["bench", "a"]])
@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        ("CORNSERVE_URL", "http://[::1", "error: url: 'http://[::1' is not a valid URL: "),
        ("CORNSERVE_API_KEY", "schlüssel", "error: CORNSERVE_API_KEY: contains characters other than printable ASCII "),
        (
            "CORNSERVE_ADMIN_TOKEN",
            "a\nb",
            "error: CORNSERVE_ADMIN_TOKEN: contains characters other than printable ASCII ",
        ),
    ],
)
def test_an_invalid_environment_is_reported_in_one_line(
    cli: CliRunner, arguments: list[str], variable: str, value: str, message: str
) -> None:
    result = cli.invoke(app, arguments, env={"CORNSERVE_URL": UNREACHABLE, variable: value})
    assert (result.exit_code, result.stderr.count("\n")) == (1, 1)
    assert result.stderr.startswith(message)


@pytest.mark.parametrize("arguments", [["status", "\udcff"], ["chat", "a", "\udcff"], ["invoke", "\udcff", "{}"]])
def test_an_argument_that_cannot_be_sent_is_reported_in_one_line(cli: CliRunner, arguments: list[str]) -> None:
    result = cli.invoke(app, [*arguments, "--url", UNREACHABLE])
    assert (result.exit_code, result.stderr.count("\n")) == (1, 1)


@pytest.mark.parametrize("value", ["inf", "nan", "-1", "1e300"])
@pytest.mark.parametrize(
    ("command", "option"),
    [
        (["bench", "a"], "--rate"),
        (["bench", "a"], "--burstiness"),
        (["bench", "a"], "--duration"),
        (["bench", "a"], "--timeout"),
        (["deploy", "a/b"], "--timeout"),
        (["scale", "a", "1"], "--timeout"),
        (["wait", "a"], "--timeout"),
    ],
)
def test_a_number_out_of_range_is_rejected(cli: CliRunner, command: list[str], option: str, value: str) -> None:
    result = cli.invoke(app, [*command, option, value, "--url", UNREACHABLE])
    assert result.exit_code == 2
    assert f"Invalid value for '{option}'" in result.stderr


@pytest.mark.parametrize(
    ("command", "option"),
    [
        (["up"], "--cpu-slots"),
        *((["bench", "a"], option) for option in ("--concurrency", "--requests", "--prompt-words", "--warmup")),
    ],
)
def test_a_number_that_would_fill_the_memory_is_rejected(cli: CliRunner, command: list[str], option: str) -> None:
    result = cli.invoke(app, [*command, option, "9" * 20])
    assert result.exit_code == 2
    assert f"Invalid value for '{option}'" in result.stderr


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (["up", "--port", "99999"], "must be less than or equal to 65535, not '99999'"),
        (["deploy", "a/b", "--replicas", "0"], "must be greater than or equal to 1, not '0'"),
        (["scale", "a", "99999"], "must be less than or equal to 64, not '99999'"),
        (["scale", "a", "two"], "must be a valid integer, not 'two'"),
        (["bench", "a", "--rate", "-1"], "must be greater than or equal to 0.001, not '-1'"),
        (["plan", "llava-1.5-7b", "--gpus", "0"], "must be greater than or equal to 1, not '0'"),
    ],
)
def test_an_invalid_value_is_quoted(cli: CliRunner, command: list[str], message: str) -> None:
    result = cli.invoke(app, command, env={"COLUMNS": "200", "TERMINAL_WIDTH": "200"})
    assert result.exit_code == 2
    assert f": {message}" in " ".join(result.stderr.split())
    assert "Value error" not in result.stderr


@pytest.mark.parametrize("option", ["max_model_len", "=5"])
def test_an_option_without_name_or_value_is_rejected(cli: CliRunner, option: str) -> None:
    result = cli.invoke(app, ["deploy", "a/b", "--option", option, "--url", UNREACHABLE])
    assert result.exit_code == 1
    assert result.stderr == f"error: {option!r} is not a valid --option: give NAME=VALUE, such as max_model_len=32768\n"


def test_an_engine_argument_has_a_name_and_a_value_and_is_given_once(cli: CliRunner) -> None:
    def error(*arguments: str) -> str:
        return cli.invoke(app, ["deploy", "a/b", *arguments, "--url", UNREACHABLE]).stderr

    assert (
        error("--engine-arg", "x") == "error: 'x' is not a valid --engine-arg: give NAME=VALUE, such as block_size=64\n"
    )
    both = ["--engine-arg", "block_size=64", "--option", 'engine_args={"block_size": 32}']
    assert error(*both) == "error: block_size is set by --engine-arg and by --option engine_args: give it once\n"
    twice = ["--engine-arg", "block_size=64", "--engine-arg", "block-size=32"]
    assert error(*twice) == "error: --engine-arg block_size is given twice: give it once\n"
    assert error("--option", "seed=1", "--option", "seed=2") == "error: --option seed is given twice: give it once\n"
    option = error("--engine-arg", "tool-parser=hermes")
    assert option == "error: --engine-arg tool_parser: is an option: give --option tool_parser=VALUE\n"
    assert error("--engine-arg", "a=1", "--option", "engine_args=2") == (
        "error: engine_args=2 is not an object: give each argument with --engine-arg\n"
    )


def test_engine_arguments_are_part_of_the_options(cli: CliRunner, server: StubServer) -> None:
    server.on("PUT /admin/v1/apps/b", json_response({"error": {"message": "stored"}}, 400))
    options = ["--engine-arg", "block-size=64", "--engine-arg", 'speculative_config={"method": "ngram"}']
    cli.invoke(
        app, ["deploy", "a/b", *options, "--option", 'engine_args={"ignore_patterns": [1]}', "--url", server.url]
    )
    [override] = server.requests[-1][1]["executors"]
    assert override["options"] == {
        "engine_args": {"ignore_patterns": [1], "block_size": 64, "speculative_config": {"method": "ngram"}}
    }


def test_the_values_of_options_are_json_or_texts(cli: CliRunner, server: StubServer) -> None:
    server.on("PUT /admin/v1/apps/b", json_response({"error": {"message": "stored"}}, 400))
    options = [
        "--option",
        "max_model_len=32768",
        "--option",
        "quantization=fp8",
        "--option",
        'engine_args={"ignore_patterns": [1]}',
    ]
    cli.invoke(app, ["deploy", "a/b", *options, "--url", server.url])
    [override] = server.requests[-1][1]["executors"]
    assert override["options"] == {
        "max_model_len": 32768,
        "quantization": "fp8",
        "engine_args": {"ignore_patterns": [1]},
    }


def test_an_adapter_is_part_of_the_spec(cli: CliRunner, server: StubServer) -> None:
    server.on("PUT /admin/v1/apps/sql", json_response({"error": {"message": "stored"}}, 400))
    options = ["--option", 'lora_modules={"sql": "/models/sql-lora"}', "--lora", "sql"]
    cli.invoke(app, ["deploy", "a/b", *options, "--url", server.url])
    spec = server.requests[-1][1]
    assert spec["model"]["lora"] == "sql"
    assert spec["executors"] == [{"name": "*", "options": {"lora_modules": {"sql": "/models/sql-lora"}}}]


def test_paths_that_the_code_may_use_are_part_of_the_spec(cli: CliRunner, server: StubServer, tmp_path: Path) -> None:
    server.on("PUT /admin/v1/apps/echo", json_response({"error": {"message": "stored"}}, 400))
    (file := tmp_path / "echo.py").write_text(ECHO)
    cli.invoke(app, ["deploy", str(file), "--allow-path", "/data", "--allow-path", "notes", "--url", server.url])
    assert server.requests[-1][1]["source"]["allow_paths"] == ["/data", str(Path.cwd() / "notes")]


def test_a_model_cannot_have_paths_for_code(cli: CliRunner, server: StubServer) -> None:
    result = cli.invoke(app, ["deploy", "a/b", "--allow-path", "/data", "--url", server.url])
    assert result.exit_code == 1
    assert "allow_paths: only the code of an app with source uses it" in " ".join(result.stderr.split())


OPTIONS_OF_MEDIA = [
    *("--media-io-kwargs", '{"video": {"fps": 1, "max_frames": 8}}'),
    *("--mm-processor-kwargs", '{"max_pixels": 5000}'),
]


def test_options_of_media_are_defaults_of_an_app(cli: CliRunner, server: StubServer) -> None:
    server.on("PUT /admin/v1/apps/vl", json_response({"error": {"message": "stored"}}, 400))
    model = "Qwen/Qwen2.5-VL-3B-Instruct"
    cli.invoke(app, ["deploy", model, "--name", "vl", *OPTIONS_OF_MEDIA, "--url", server.url])
    given = server.requests[-1][1]["model"]["media_options"]
    assert {name: value for name, value in given.items() if value} == {"fps": 1, "max_frames": 8, "max_pixels": 5000}


def test_options_of_media_are_fields_of_a_chat(cli: CliRunner, server: StubServer) -> None:
    server.on("POST /v1/chat/completions", json_response({"choices": []}))
    assert cli.invoke(app, ["chat", "a", "Why?", "--json", *OPTIONS_OF_MEDIA, "--url", server.url]).exit_code == 0
    body = server.requests[-1][1]
    assert body["media_io_kwargs"] == {"video": {"fps": 1, "max_frames": 8}}
    assert body["mm_processor_kwargs"] == {"max_pixels": 5000}


def test_a_chat_can_have_the_sound_of_videos_but_not_an_app(cli: CliRunner, server: StubServer) -> None:
    server.on("POST /v1/chat/completions", json_response({"choices": []}))
    sound = ["--mm-processor-kwargs", '{"use_audio_in_video": true}', "--url", server.url]
    assert cli.invoke(app, ["chat", "a", "Why?", "--json", *sound]).exit_code == 0
    assert server.requests[-1][1]["mm_processor_kwargs"] == {"use_audio_in_video": True}
    result = cli.invoke(app, ["deploy", "a/b", *sound])
    assert result.stderr == "error: --mm-processor-kwargs: use_audio_in_video is an option of requests: remove it\n"


@pytest.mark.parametrize("command", [["deploy", "a/b"], ["chat", "a", "Why?"]])
@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["--media-io-kwargs", "{"], "--media-io-kwargs: not valid JSON: "),
        (["--media-io-kwargs", "[]"], "--media-io-kwargs: must be an object"),
        (["--media-io-kwargs", '{"image": {}}'], "--media-io-kwargs: image: is not a known field"),
        (["--media-io-kwargs", '{"video": {"fps": 60}}'], "--media-io-kwargs: video.fps: must be less than or equal"),
        (["--mm-processor-kwargs", "\udcff"], "--mm-processor-kwargs: not valid JSON: "),
        (["--mm-processor-kwargs", '{"fps": 1}'], "--mm-processor-kwargs: fps: is not a known field"),
        (["--mm-processor-kwargs", '{"min_pixels": 9, "max_pixels": 8}'], "--mm-processor-kwargs: min_pixels: 9 is"),
    ],
)
def test_invalid_options_of_media_are_errors_of_one_line(
    cli: CliRunner, command: list[str], arguments: list[str], error: str
) -> None:
    result = cli.invoke(app, [*command, *arguments, "--url", UNREACHABLE])
    assert result.exit_code == 1
    assert result.stderr.startswith(f"error: {error}")
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("path", "options"), [("/v1/images/generations", "--size or --steps"), ("/v1/apps/a/invoke", "--request")]
)
def test_a_measurement_of_an_app_without_chats_names_the_option_for_its_requests(
    cli: CliRunner, server: StubServer, path: str, options: str
) -> None:
    refusal = f"the app 'a' does not support /v1/chat/completions: call it with POST {path}"
    server.on("GET /v1/models", json_response({"object": "list", "data": [{"id": "a", "object": "model"}]}))
    server.on("POST /v1/chat/completions", json_response({"error": {"message": refusal}}, 400))
    result = cli.invoke(app, ["bench", "a", "--url", server.url])
    assert result.stderr == f"error: a did not respond to the warm-up: {refusal}: use {options}\n"


def test_an_error_of_the_gateway_is_reported_in_one_line(cli: CliRunner, server: StubServer) -> None:
    server.on("GET /admin/v1/apps/a?memory=true", json_response({"error": {"message": "unknown app 'a'"}}, 404))
    result = cli.invoke(app, ["status", "a", "--url", server.url])
    assert (result.exit_code, result.stderr) == (1, "error: unknown app 'a'\n")


@pytest.mark.parametrize("request_argument", ['{"text": "x"}', "@request.json", "-"])
def test_a_request_is_an_argument_a_file_or_standard_input(
    cli: CliRunner, server: StubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request_argument: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("request.json").write_text('{"text": "x"}')
    server.on("POST /v1/apps/a/invoke", json_response({"text": "y"}))
    result = cli.invoke(app, ["invoke", "a", request_argument, "--url", server.url], input='{"text": "x"}')
    assert result.exit_code == 0
    assert result.stdout == '{\n  "text": "y"\n}\n'
    assert server.requests == [("POST /v1/apps/a/invoke", {"text": "x"})]


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("{", "error: the request is not valid JSON"),
        ("@nowhere.json", "error: cannot read the request '@nowhere.json': No such file or directory: "),
        ('"\udcff"', "error: the request is not valid JSON"),
    ],
)
def test_an_invalid_request_is_not_sent(cli: CliRunner, argument: str, message: str) -> None:
    result = cli.invoke(app, ["invoke", "a", argument, "--url", UNREACHABLE])
    assert result.exit_code == 1
    assert result.stderr.startswith(message)


def test_a_question_on_standard_input_is_answered(cli: CliRunner, server: StubServer) -> None:
    server.on("POST /v1/chat/completions", json_response({"choices": []}))
    arguments = ["chat", "a", "--json", "--system", "Be brief.", "--max-tokens", "5", "--url", server.url]
    assert cli.invoke(app, arguments, input="Why?\n").exit_code == 0
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Why?"}]
    assert server.requests[0][1] == {"model": "a", "messages": messages, "max_tokens": 5}


def test_images_of_a_chat_are_saved(cli: CliRunner, server: StubServer, tmp_path: Path) -> None:
    part = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aWU="}}
    deltas = [{"content": "A fox."}, {"images": [part, part]}]
    events = [*(json.dumps({"choices": [{"delta": delta}]}) for delta in deltas), "[DONE]"]
    body = "".join(f"data: {event}\n\n" for event in events)
    server.on("POST /v1/chat/completions", StubResponse(body.encode(), type="text/event-stream"))
    chat = ["chat", "a", "Draw a fox.", "--url", server.url]

    saved = cli.invoke(app, [*chat, "--save", str(tmp_path / "fox.png")])
    unsaved = cli.invoke(app, chat)
    refused = cli.invoke(app, [*chat, "--save", "fox.jpg"])

    files = [tmp_path / "fox.png", tmp_path / "fox-2.png"]
    assert saved.stdout.splitlines() == ["A fox.", *map(str, files)]
    assert [file.read_bytes() for file in files] == [b"ie", b"ie"]
    assert unsaved.stdout == "A fox.\n"
    assert "save it with --save FILE.png" in unsaved.stderr
    assert (refused.exit_code, refused.stderr.count("\n")) == (1, 1)
    assert "give a file name that ends with .png" in refused.stderr


def test_media_are_sent_with_the_question(cli: CliRunner, server: StubServer, tmp_path: Path) -> None:
    file = tmp_path / "photo"
    file.write_bytes(b"\x89PNG")
    server.on("POST /v1/chat/completions", json_response({"choices": []}))
    sound = tmp_path / "a.wav"
    sound.write_bytes(b"RIFF")
    images = ["--image", str(file), "--image", "https://x/y.png"]
    audio = ["--audio", str(sound), "--audio", "https://x/y.mp3"]

    assert cli.invoke(app, ["chat", "a", "Why?", "--json", *images, *audio, "--url", server.url]).exit_code == 0

    parts = [
        {"type": "image_url", "image_url": {"url": "data:image/*;base64,iVBORw=="}},
        {"type": "image_url", "image_url": {"url": "https://x/y.png"}},
        {"type": "audio_url", "audio_url": {"url": "data:audio/*;base64,UklGRg=="}},
        {"type": "audio_url", "audio_url": {"url": "https://x/y.mp3"}},
        {"type": "text", "text": "Why?"},
    ]
    assert server.requests[0][1]["messages"] == [{"role": "user", "content": parts}]


def test_an_image_that_cannot_be_read_is_not_sent(cli: CliRunner, tmp_path: Path) -> None:
    file = tmp_path / "photo.png"

    result = cli.invoke(app, ["chat", "a", "Why?", "--image", str(file), "--url", UNREACHABLE])

    assert result.exit_code == 1
    assert result.stderr.startswith(f"error: cannot send the image {str(file)!r}: No such file")


@pytest.mark.parametrize(
    ("options", "fields", "printed"),
    [
        ([], {}, "Hello there\n"),
        (["--language", "de", "--prompt", "Hallo"], {"language": "de", "prompt": "Hallo"}, "Hello there\n"),
        (["--segments"], {"response_format": "verbose_json"}, "    1.50    12.25  Hello\n"),
        (
            ["--segments", "--words"],
            {"response_format": "verbose_json", "timestamp_granularities[]": "word"},
            "    1.50    12.25  Hello\n    1.50     1.75  Hello\n",
        ),
    ],
)
def test_a_transcript_is_printed(
    cli: CliRunner, server: StubServer, tmp_path: Path, options: list[str], fields: dict[str, str], printed: str
) -> None:
    file = tmp_path / "speech.wav"
    file.write_bytes(b"RIFF")
    segments = [{"start": 1.5, "end": 12.25, "text": " Hello"}]
    words = [{"word": "Hello", "start": 1.5, "end": 1.75}] if "--words" in options else None
    server.on(
        "POST /v1/audio/translations", json_response({"text": " Hello there", "segments": segments, "words": words})
    )

    result = cli.invoke(app, ["transcribe", "a", str(file), "--translate", *options, "--url", server.url])

    assert result.stdout == printed
    ((_, form),) = server.requests
    for name, value in ({"model": "a"} | fields).items():
        assert f'name="{name}"\r\n\r\n{value}\r\n'.encode() in form
    assert b'name="file"; filename="speech.wav"' in form
    assert form.count(b"\r\n--") == len(fields) + 2 + ("--words" in options)  # Each granularity is a field.


def test_a_missing_audio_file_is_reported_in_one_line(cli: CliRunner) -> None:
    result = cli.invoke(app, ["transcribe", "a", "missing.wav", "--url", UNREACHABLE])

    assert result.exit_code == 1
    assert result.stderr == "error: audio: cannot read 'missing.wav': No such file or directory\n"


def _completed(seed: int, file: bytes) -> tuple[str, dict[str, object]]:
    name = "image_generation.completed"
    fields = {"b64_json": b64encode(file).decode(), "seed": seed, "size": "64x64", "usage": {"total_tokens": 3}}
    return name, {"type": name, **fields}


STEP = ("image_generation.progress", {"type": "image_generation.progress", "step": 1, "steps": 2, "image": 0})


def test_images_are_saved_with_numbers(cli: CliRunner, server: StubServer, tmp_path: Path) -> None:
    server.on("POST /v1/images/generations", sse_response(STEP, _completed(7, b"one"), _completed(8, b"two")))
    options = ["--size", "64x64", "--n", "2", "--seed", "7", "--steps", "2", "--guidance", "1", "--url", server.url]

    result = cli.invoke(app, ["imagine", "a", "corn", "--save", str(tmp_path / "corn.JPG"), *options])

    files = [tmp_path / "corn-1.JPG", tmp_path / "corn-2.JPG"]
    assert result.stdout == f"{files[0]} (seed 7)\n{files[1]} (seed 8)\n"
    assert [file.read_bytes() for file in files] == [b"one", b"two"]
    assert server.requests[0][1] == {
        "model": "a",
        "prompt": "corn",
        "stream": True,
        "progress": True,
        "n": 2,
        "size": "64x64",
        "seed": 7,
        "num_inference_steps": 2,
        "true_cfg_scale": 1.0,
        "output_format": "jpeg",
    }


def test_saved_images_are_listed_as_json(cli: CliRunner, server: StubServer, tmp_path: Path) -> None:
    server.on("POST /v1/images/generations", sse_response(_completed(7, b"one")))
    file = tmp_path / "corn.png"

    result = cli.invoke(app, ["imagine", "a", "corn", "--save", str(file), "--json", "--url", server.url])

    expected = {"images": [{"file": str(file), "seed": 7}], "size": "64x64", "usage": {"total_tokens": 3}}
    assert json.loads(result.stdout) == expected


@pytest.mark.parametrize(
    ("file", "message"),
    [("corn.gif", "give a file name that ends with .png"), ("missing/corn.png", "missing is not a directory")],
)
def test_an_image_that_cannot_be_saved_is_not_generated(cli: CliRunner, file: str, message: str) -> None:
    result = cli.invoke(app, ["imagine", "a", "corn", "--save", file, "--url", UNREACHABLE])

    assert result.exit_code == 1
    assert result.stderr.startswith(f"error: cannot save {file}: ")
    assert message in result.stderr


WAV = b"RIFF\xff\xff\xff\xffWAVEfmt " + bytes(20) + b"data\xff\xff\xff\xff"
"""The header of a streamed file: its lengths are unknown."""


def test_speech_is_saved_with_its_length(cli: CliRunner, server: StubServer, tmp_path: Path) -> None:
    server.on("POST /v1/audio/speech", audio_response(WAV + b"corn"))
    file = tmp_path / "corn.wav"
    options = ["--voice", "3", "--speed", "2", "--seed", "7", "--url", server.url]

    result = cli.invoke(app, ["speak", "a", "corn", "--save", str(file), *options])

    content = file.read_bytes()
    assert result.stdout == f"{file}\n"
    assert (int.from_bytes(content[4:8], "little"), content[40:44]) == (40, b"\4\0\0\0")
    assert (content[8:40], content[44:]) == (WAV[8:40], b"corn")
    assert server.requests[0][1] == {
        "model": "a",
        "input": "corn",
        "voice": "3",
        "speed": 2.0,
        "seed": 7,
        "response_format": "wav",
    }
    assert [each.name for each in tmp_path.iterdir()] == ["corn.wav"]


@pytest.mark.parametrize(
    ("arguments", "format"),
    [(["--save", "corn.OGG"], "opus"), (["--save", "corn.bin", "--format", "aac"], "aac"), (["--save", "-"], "wav")],
)
def test_the_format_of_speech_is_that_of_the_file(
    cli: CliRunner,
    server: StubServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    format: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    server.on("POST /v1/audio/speech", audio_response(b"file"))

    result = cli.invoke(app, ["speak", "a", "corn", *arguments, "--url", server.url])

    assert server.requests[0][1]["response_format"] == format
    assert result.stdout == ("file" if arguments == ["--save", "-"] else f"{arguments[1]}\n")


def test_saved_speech_is_described_as_json(cli: CliRunner, server: StubServer, tmp_path: Path) -> None:
    server.on("POST /v1/audio/speech", audio_response(b"four"))
    file = tmp_path / "corn.mp3"

    result = cli.invoke(app, ["speak", "a", "corn", "--save", str(file), "--json", "--url", server.url])

    assert json.loads(result.stdout) == {"file": str(file), "bytes": 4, "format": "mp3"}


def test_speech_that_ends_early_leaves_the_file(cli: CliRunner, server: StubServer, tmp_path: Path) -> None:
    server.on("POST /v1/audio/speech", audio_response(b"new", cut=True))
    file = tmp_path / "corn.mp3"
    file.write_bytes(b"old")

    result = cli.invoke(app, ["speak", "a", "corn", "--save", str(file), "--url", server.url])

    assert (result.exit_code, file.read_bytes(), len(list(tmp_path.iterdir()))) == (1, b"old", 1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--save", "corn.gif"], "cannot save corn.gif: give a file name that ends with .mp3, .opus"),
        (["--save", "missing/corn.wav"], "cannot save missing/corn.wav: missing is not a directory"),
        (["--format", "gif"], "unknown format 'gif': use mp3, opus, aac, flac, wav, pcm"),
    ],
)
def test_speech_that_cannot_be_saved_is_not_generated(cli: CliRunner, arguments: list[str], message: str) -> None:
    result = cli.invoke(app, ["speak", "a", "corn", *arguments, "--url", UNREACHABLE])

    assert result.exit_code == 1
    assert result.stderr.startswith(f"error: {message}")


@pytest.mark.parametrize(
    "command",
    [
        ["imagine", "a", "corn", "--save", "FILE.png"],
        ["chat", "a", "Draw corn.", "--save", "FILE.png"],
        ["chat", "a", "Hello!", "--voice", "ethan", "--save", "FILE.wav"],
        ["speak", "a", "corn", "--save", "FILE.wav"],
        ["bench", "a", "--save", "FILE.json"],
        ["profile", "a", "--output", "FILE.json"],
        ["plan", "qwen2.5-omni-7b", "--gpus", "16", "--save", "FILE.json"],
    ],
)
def test_a_file_that_cannot_be_written_is_found_before_the_work(cli: CliRunner, command: list[str]) -> None:
    file = command[-1].replace("FILE", "x" * 300)

    result = cli.invoke(app, [*command[:-1], file], env={"CORNSERVE_URL": UNREACHABLE})

    assert result.exit_code == 1
    assert result.stderr.startswith("error: ")
    assert result.stderr.endswith(": File name too long\n")


def test_an_image_over_a_directory_is_not_generated(cli: CliRunner, tmp_path: Path) -> None:
    (tmp_path / "corn.png").mkdir()

    result = cli.invoke(app, ["imagine", "a", "corn", "--save", str(tmp_path / "corn.png"), "--url", UNREACHABLE])

    assert result.stderr == f"error: cannot save {tmp_path / 'corn.png'}: Is a directory\n"


def test_speech_does_not_replace_a_pipe(cli: CliRunner, tmp_path: Path) -> None:
    os.mkfifo(pipe := tmp_path / "pipe")

    result = cli.invoke(app, ["speak", "a", "corn", "--save", str(pipe), "--format", "wav", "--url", UNREACHABLE])

    assert result.stderr == f"error: cannot save {pipe}: it is not a regular file: give another name\n"
    assert pipe.is_fifo()


def test_a_timeout_of_the_gateway_is_not_an_error_of_the_file(tmp_path: Path) -> None:
    with pytest.raises(ResponseTimeoutError), replaced_file(tmp_path / "corn.wav"):
        raise ResponseTimeoutError("http://gateway", 5)


def test_a_result_that_cannot_be_saved_is_printed(cli: CliRunner, server: StubServer, tmp_path: Path) -> None:
    server.on("GET /v1/models", json_response({"data": [{"id": "a"}]}))
    server.on("POST /v1/apps/a/invoke", json_response({}))
    (request := tmp_path / "request.json").write_text("{}")
    load = ["--request", str(request), "--no-stream", "--requests", "1", "--warmup", "0", "--url", server.url]

    result = cli.invoke(app, ["bench", "a", *load, "--save", "/dev/full"])

    assert (result.exit_code, result.stderr) == (1, "error: cannot save /dev/full: No space left on device\n")
    assert "1 answered" in result.stdout


def test_a_demo_whose_images_cannot_be_saved_is_not_deployed(cli: CliRunner, tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    result = cli.invoke(app, ["demo", "--save", str(tmp_path / "file"), "--url", UNREACHABLE])

    assert result.exit_code == 1
    assert result.stderr == f"error: cannot create {tmp_path / 'file'}: File exists\n"


def test_the_logs_of_a_failed_app_come_from_its_status(cli: CliRunner, server: StubServer) -> None:
    status = {"phase": "failed", "generation": 1, "message": "no", "logs": ["out of words"]}
    view = {"name": "a", "uid": "u", "generation": 1, "version": 1, "spec": {"model": {"id": "/m"}}, "status": status}
    server.on("GET /admin/v1/apps/a/logs?lines=100", json_response({"replicas": []}))
    server.on("GET /admin/v1/apps/a", json_response(view))
    assert cli.invoke(app, ["logs", "a", "--url", server.url]).stdout == "failed | out of words\n"


def test_the_last_exits_of_an_app_are_shown_with_their_reasons(cli: CliRunner, server: StubServer) -> None:
    exit = {"replica": "llm-1-x", "group": "llm-1", "time": "2026-11-22T12:00:00Z", "message": "out of memory: killed"}
    status = {"phase": "serving", "generation": 1, "exits": [exit]}
    view = {"name": "a", "uid": "u", "generation": 1, "version": 1, "spec": {"model": {"id": "/m"}}, "status": status}
    logs = [{"id": "llm-1-x", "lines": ["last words"], "exit": exit}, {"id": "llm-1-y", "lines": ["ready"]}]
    server.on("GET /admin/v1/apps/a?memory=true", json_response(view))
    server.on("GET /admin/v1/apps/a/logs?lines=100", json_response({"replicas": logs}))
    arguments = ["a", "--url", server.url]

    assert (
        "2026-11-22 12:00:00  llm-1-x  out of memory: killed"
        in cli.invoke(app, ["status", *arguments], env={"TZ": "UTC"}).stdout
    )
    assert cli.invoke(app, ["logs", *arguments], env={"TZ": "UTC"}).stdout == (
        "llm-1-x | last words\nllm-1-x ended at 2026-11-22 12:00:00: out of memory: killed\nllm-1-y | ready\n"
    )


def test_the_log_of_one_replica_is_shown(cli: CliRunner, server: StubServer) -> None:
    replica = "gateway 127.0.0.1:1"
    path = "/admin/v1/apps/a/logs?lines=100&replica=gateway%20127.0.0.1%3A1"
    server.on(f"GET {path}", json_response({"replicas": [{"id": replica, "lines": ["PRINT"]}]}))

    result = cli.invoke(app, ["logs", "a", "--replica", replica, "--url", server.url])

    assert result.stdout == "gateway 127.0.0.1:1 | PRINT\n"


def test_the_memory_of_replicas_is_shown(cli: CliRunner, server: StubServer) -> None:
    plain = {"id": "writer-1-x", "limit": 3 << 30, "resident": 20 << 20, "used": 4 << 20}
    plain |= {"protocols": ["tcp"], "pulled_bytes": {}}
    copies = {"kv_copies": 7, "kv_copied_bytes": 48 << 20, "kv_copy_seconds": 0.25}
    nothing = dict.fromkeys(copies, 0)
    pulls = {"protocols": ["ucx", "tcp"], "pulled_bytes": {"ucx": 5 << 20}}
    memory = [plain | nothing, plain | {"id": "decode-1-x"} | pulls | copies]
    view = {"name": "a", "uid": "u", "generation": 1, "version": 1, "spec": {"model": {"id": "/m"}}, "status": {}}
    server.on("GET /admin/v1/apps/a?memory=true", json_response(view | {"memory": memory}))

    shown = cli.invoke(app, ["status", "a", "--url", server.url]).stdout
    document = json.loads(cli.invoke(app, ["status", "a", "--json", "--url", server.url]).stdout)

    assert "writer-1-x  4 MiB used, 20 MiB resident, at most 3072 MiB; pulls by tcp\n" in shown
    assert "at most 3072 MiB; pulls by ucx, tcp (5 MiB by ucx); 7 KV caches copied (48 MiB in 0.25 s)" in shown.replace(
        "\n", " "
    )
    assert document["memory"] == memory


@pytest.mark.parametrize("command", [["up"], ["down"], ["plan", "llava-1.5-7b"]])
def test_commands_of_this_machine_refuse_a_cluster(cli: CliRunner, command: list[str]) -> None:
    result = cli.invoke(app, ["--context", "c", *command])
    assert result.exit_code == 2
    assert f"`cornserve {command[0]}` runs on this machine: leave out --context" in " ".join(result.stderr.split())


def test_a_url_and_a_cluster_on_the_command_line_are_refused(cli: CliRunner) -> None:
    result = cli.invoke(app, ["--namespace", "n", "status", "--url", UNREACHABLE])
    assert result.exit_code == 2
    assert "--url and --namespace select different gateways" in result.stderr


def test_a_url_and_a_cluster_in_the_environment_are_refused(cli: CliRunner) -> None:
    result = cli.invoke(app, ["status"], env={"CORNSERVE_URL": UNREACHABLE, "CORNSERVE_CONTEXT": "c"})
    assert (result.exit_code, result.stderr) == (
        1,
        "error: CORNSERVE_URL and CORNSERVE_CONTEXT are both set and select different gateways: unset one of them\n",
    )


def test_options_have_precedence_over_the_environment(cli: CliRunner, tmp_path: Path) -> None:
    kubeconfig = {"KUBECONFIG": str(tmp_path / "none")}

    by_url = cli.invoke(app, ["status", "--url", UNREACHABLE], env=kubeconfig | {"CORNSERVE_CONTEXT": "c"})
    by_context = cli.invoke(app, ["--context", "c", "status"], env=kubeconfig | {"CORNSERVE_URL": UNREACHABLE})

    assert by_url.stderr.startswith(f"error: cannot connect to Cornserve at {UNREACHABLE}")
    assert by_context.stderr.startswith("error: no Kubernetes cluster is configured")


def test_contexts_are_completed_from_all_files_of_the_kubeconfig(cli: CliRunner, tmp_path: Path) -> None:
    for name, contexts in [("a", "[{name: kind}, {name: production}]"), ("b", "[{name: kwok}]"), ("c", "{")]:
        (tmp_path / name).write_text(f"contexts: {contexts}")
    files = ":".join(str(tmp_path / name) for name in ("a", "missing", "b", "c"))
    environment = {"KUBECONFIG": files, "_CORNSERVE_COMPLETE": "complete_bash", "COMP_WORDS": "cornserve --context k"}

    result = cli.invoke(app, [], env=environment | {"COMP_CWORD": "2"}, prog_name="cornserve")

    assert result.stdout.split() == ["kind", "kwok"]


@pytest.mark.parametrize(
    ("line", "completed"),
    [
        ("cornserve plan --gpus", {"--gpus", "--gpus-of"}),
        ("cornserve plan --he", {"--help"}),
        ("cornserve plan a", {"adapt"}),
        ("cornserve plan qwen-", {"qwen-image"}),
    ],
)
def test_plan_completes_subcommands_models_and_the_options_of_its_short_form(
    cli: CliRunner, line: str, completed: set[str]
) -> None:
    environment = {"_CORNSERVE_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": "2"}

    result = cli.invoke(app, [], env=environment, prog_name="cornserve")

    assert set(result.stdout.split()) == completed


def test_the_events_of_an_app_are_printed_with_their_times_and_counts(cli: CliRunner, server: StubServer) -> None:
    events = [
        {"type": "Normal", "reason": "Serving", "object": "App/a", "message": ""},
        {
            "time": "2026-11-22T12:00:00Z",
            "type": "Warning",
            "reason": "BackOff",
            "object": "Pod/llm-1",
            "message": "restarting",
            "count": 3,
        },
    ]
    server.on("GET /admin/v1/apps/a/history", json_response({"events": events}))

    result = cli.invoke(app, ["status", "a", "--events", "--url", server.url], env={"TZ": "UTC"})

    first, second = result.stdout.splitlines()
    assert first.split() == ["now", "Serving", "App/a"]
    assert second.split() == ["2026-11-22", "12:00:00", "BackOff", "Pod/llm-1", "restarting", "(3", "times)"]


def test_a_parked_app_is_shown(cli: CliRunner, server: StubServer) -> None:
    status = {"phase": "parked", "generation": 1}
    view = {"name": "a", "uid": "u", "generation": 1, "version": 1, "spec": {"model": {"id": "/m"}}, "status": status}
    server.on("GET /admin/v1/apps", json_response({"apps": [view], "unreadable": []}))
    assert "parked" in cli.invoke(app, ["status", "--url", server.url]).stdout


def test_the_deployment_of_a_parked_app_names_the_command_that_starts_it(
    cli: CliRunner, server: StubServer, tmp_path: Path
) -> None:
    (file := tmp_path / "echo.py").write_text(ECHO)
    view = {"name": "echo", "uid": "u", "generation": 2, "version": 1, "spec": {"model": {"id": "/m"}, "replicas": 0}}
    server.on("PUT /admin/v1/apps/echo", json_response(view | {"status": {}}))
    parked = view | {"status": {"phase": "parked", "generation": 2}}
    server.on("GET /admin/v1/apps/echo/events", sse_response(("put", parked)))

    result = cli.invoke(app, ["deploy", str(file), "--url", server.url])

    assert result.exit_code == 0
    assert "echo is parked: start it with `cornserve scale echo 1`" in result.stderr


@pytest.mark.parametrize(("options", "output"), [([], "a deleted\nc deleted\n"), (["--json"], {"deleted": ["a", "c"]})])
def test_an_app_that_cannot_be_deleted_does_not_stop_the_others(
    cli: CliRunner, server: StubServer, options: list[str], output: object
) -> None:
    for name in ("a", "c"):
        server.on(f"DELETE /admin/v1/apps/{name}", json_response({}))

    result = cli.invoke(app, ["delete", "a", "b", "c", *options, "--url", server.url])

    assert (result.exit_code, result.stderr) == (1, "error: no response for DELETE /admin/v1/apps/b\n")
    assert (json.loads(result.stdout) if options else result.stdout) == output


def test_a_restart_that_fails_is_reported(cli: CliRunner, server: StubServer) -> None:
    status = {"phase": "failed", "generation": 2, "message": "out of words"}
    view = {"name": "a", "uid": "u", "generation": 2, "version": 1, "spec": {"model": {"id": "/m"}}}
    server.on("POST /admin/v1/apps/a/restart", json_response(view | {"status": {}}))
    server.on("GET /admin/v1/apps/a/events", sse_response(("put", view | {"status": status})))

    result = cli.invoke(app, ["restart", "a", "--url", server.url])

    assert (result.exit_code, result.stderr) == (1, "error: a failed to start: out of words\n")


def test_one_executor_is_restarted(cli: CliRunner, server: StubServer) -> None:
    view = {"name": "a", "uid": "u", "generation": 2, "version": 1, "spec": {"model": {"id": "/m"}}, "status": {}}
    server.on("POST /admin/v1/apps/a/restart?executor=llm&executor=encoder", json_response(view))

    result = cli.invoke(
        app, ["restart", "a", "--executor", "llm", "--executor", "encoder", "--no-wait", "--url", server.url]
    )

    assert result.exit_code == 0, result.stderr


def test_a_restart_prints_the_requests_that_moved_and_those_that_did_not(
    cli: CliRunner, server: StubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cornserve.cli.restart.MOVE_SECONDS", 0.0)
    status = {"phase": "serving", "generation": 2}
    view = {"name": "a", "uid": "u", "generation": 2, "version": 1, "spec": {"model": {"id": "/m"}}}
    server.on("POST /admin/v1/apps/a/restart", json_response(view | {"status": {}, "moved_streams": 2}))
    server.on("GET /admin/v1/apps/a/events", sse_response(("put", view | {"status": status, "moved_streams": 2})))
    server.on("GET /v1/models", json_response({"data": [{"id": "a", "uid": "u", "generation": 2}]}))
    moved = view | {"status": status, "moved_streams": 5, "left_invocations": 1}
    server.on("GET /admin/v1/apps/a", json_response(moved))

    result = cli.invoke(app, ["restart", "a", "--url", server.url])

    assert result.exit_code == 0, result.stderr
    assert result.stderr.splitlines()[-2:] == [
        "3 running responses moved to the new executors",
        "1 running requests end on the old executors",
    ]


def test_a_restart_does_not_wait_beyond_its_timeout(
    cli: CliRunner, server: StubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = FakeTime()
    monkeypatch.setattr("cornserve.cli.restart.time", clock)
    monkeypatch.setattr("cornserve.client.deadline.time", clock)
    status = {"phase": "serving", "generation": 2}
    view = {"name": "a", "uid": "u", "generation": 2, "version": 1, "spec": {"model": {"id": "/m"}}, "status": status}
    server.on("POST /admin/v1/apps/a/restart", json_response(view | {"status": {}}))
    server.on("GET /admin/v1/apps/a/events", sse_response(("put", view)))
    server.on("GET /v1/models", json_response({"data": [{"id": "a", "uid": "u", "generation": 2}]}))
    server.on("GET /admin/v1/apps/a", json_response(view | {"left_invocations": 1}))

    result = cli.invoke(app, ["restart", "a", "--timeout", "3", "--url", server.url])

    assert (result.exit_code, result.stderr.splitlines()[-1]) == (0, "1 running requests end on the old executors")
    assert 3 <= clock.now < 4


def test_exported_apps_are_imported(cli: CliRunner, server: StubServer, tmp_path: Path) -> None:
    view = {"name": "a", "uid": "u", "generation": 1, "version": 1, "spec": {"model": {"id": "m/m"}}, "status": {}}
    server.on("GET /admin/v1/apps", json_response({"apps": [view], "unreadable": []}))
    server.on("PUT /admin/v1/apps/a", json_response(view))
    file = tmp_path / "apps.json"

    exported = cli.invoke(app, ["export", str(file), "--url", server.url])
    imported = cli.invoke(app, ["import", str(file), "--url", server.url])

    assert exported.exit_code == 0
    assert json.loads(file.read_text()) == {"apps": {"a": {"model": {"id": "m/m"}}}}
    assert (imported.exit_code, imported.stdout) == (0, "a deployed\n")


def test_an_app_that_cannot_be_imported_does_not_stop_the_others(
    cli: CliRunner, server: StubServer, tmp_path: Path
) -> None:
    view = {"name": "b", "uid": "u", "generation": 1, "version": 1, "spec": {"model": {"id": "m/m"}}, "status": {}}
    server.on("PUT /admin/v1/apps/b", json_response(view))
    file = tmp_path / "apps.json"
    file.write_text('{"apps": {"a": {"model": {"id": "m/m"}, "colour": "red"}, "b": {"model": {"id": "m/m"}}}}')

    result = cli.invoke(app, ["import", str(file), "--url", server.url])

    assert (result.exit_code, result.stdout) == (1, "b deployed\n")
    assert result.stderr == "error: a: colour: is not a known field: remove it or correct its name\n"
    file.write_text("{}")
    assert "is not a file of `cornserve export`" in cli.invoke(app, ["import", str(file)]).stderr


def test_the_apps_of_a_store_of_another_version_are_exported(cli: CliRunner, tmp_path: Path) -> None:
    store, file = tmp_path / "state.db", tmp_path / "apps.json"
    create_database(store)
    with closing(sqlite3.connect(store)) as database, database:
        database.execute("ALTER TABLE records ADD COLUMN colour TEXT")
        database.execute("INSERT INTO records (kind, name, spec) VALUES ('App', 'a', '{\"model\": \"m/m\"}')")
        database.execute("PRAGMA user_version = 2")

    assert cli.invoke(app, ["export", str(file), "--store", str(store)]).exit_code == 0

    assert json.loads(file.read_text()) == {"apps": {"a": {"model": "m/m"}}}
    missing = cli.invoke(app, ["export", str(file), "--store", str(tmp_path / "none.db")])
    assert (missing.exit_code, "cannot read the apps of the store" in missing.stderr) == (1, True)
