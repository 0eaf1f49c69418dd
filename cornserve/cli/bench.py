"""`cornserve bench`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cornserve.bench.server_api import ServerName
from cornserve.cli.console import CliError, check_file, expanded, print_json, stderr, stdout, write_file
from cornserve.cli.gateway import check_serves, open_client
from cornserve.cli.options import AppName, Json, Url

if TYPE_CHECKING:
    from cornserve.bench.result import BenchResult
    from cornserve.bench.settings import BenchSettings
    from cornserve.client import Client

LOAD, REQUESTS = "Load", "Requests"
"""Groups of options in the help."""


def bench(
    ctx: typer.Context,
    app: AppName,
    concurrency: Annotated[
        int | None,
        typer.Option(
            "--concurrency",
            "-c",
            min=1,
            max=100_000,
            help="Concurrent requests. By default 8, unless --rate is given.",
            rich_help_panel=LOAD,
        ),
    ] = None,
    rate: Annotated[
        float | None,
        typer.Option(
            "--rate",
            min=0.001,
            max=1_000_000,
            help="Requests per second, without a limit on concurrent requests.",
            rich_help_panel=LOAD,
        ),
    ] = None,
    burstiness: Annotated[
        float,
        typer.Option(
            "--burstiness",
            min=0.01,
            max=1_000_000,
            help="With --rate. 1: Poisson arrivals; lower: bursts; higher: even arrivals.",
            rich_help_panel=LOAD,
        ),
    ] = 1.0,
    requests: Annotated[
        int | None,
        typer.Option(
            "--requests",
            "-n",
            min=1,
            max=10_000_000,
            help="Number of requests. By default 100, unless --duration is given.",
            rich_help_panel=LOAD,
        ),
    ] = None,
    duration: Annotated[
        float | None,
        typer.Option(
            "--duration", min=0.1, max=1_000_000, help="Seconds for which requests are sent.", rich_help_panel=LOAD
        ),
    ] = None,
    prompt: Annotated[str | None, typer.Option("--prompt", help="Send this prompt.", rich_help_panel=REQUESTS)] = None,
    prompt_words: Annotated[
        int | None,
        typer.Option(
            "--prompt-words",
            min=1,
            max=10_000_000,
            help="Send this number of random words. By default 50.",
            rich_help_panel=REQUESTS,
        ),
    ] = None,
    dataset: Annotated[
        Path | None,
        typer.Option(
            "--dataset",
            help='Send chats from a JSON Lines file: {"prompt": "…"} or {"messages": […]}, and options.',
            rich_help_panel=REQUESTS,
        ),
    ] = None,
    workload: Annotated[
        Path | None,
        typer.Option(
            "--workload",
            help="Send chats, or requests for images or speech, with the sizes of the planner's file of requests.",
            rich_help_panel=REQUESTS,
        ),
    ] = None,
    recorded: Annotated[
        bool,
        typer.Option(
            "--recorded",
            help="With --workload: send each request once, at its recorded time (with --rate: scaled to this rate), and"
            " after the requests on which it depends.",
            rich_help_panel=LOAD,
        ),
    ] = False,
    compare: Annotated[
        bool | None,
        typer.Option(
            "--aa/--no-aa",
            help="Run the load twice, with other contents, and print the differences: the noise of the measurement."
            " The default with --recorded.",
            show_default=False,
            rich_help_panel=LOAD,
        ),
    ] = None,
    server: Annotated[
        ServerName, typer.Option("--server", help="Program at --url. APP is the id of its model.")
    ] = "cornserve",
    request: Annotated[
        Path | None,
        typer.Option(
            "--request",
            help="Send native requests: a JSON file, or a JSON Lines file (.jsonl).",
            rich_help_panel=REQUESTS,
        ),
    ] = None,
    size: Annotated[
        str | None,
        typer.Option(
            "--size",
            metavar="WIDTHxHEIGHT",
            help="Request images of this size in pixels, instead of chats.",
            rich_help_panel=REQUESTS,
        ),
    ] = None,
    steps: Annotated[
        int | None,
        typer.Option(
            "--steps",
            min=1,
            help="Request images with this number of denoising steps, instead of chats.",
            rich_help_panel=REQUESTS,
        ),
    ] = None,
    speech: Annotated[
        bool,
        typer.Option(
            "--speech", help="Request speech of the texts (text to speech), instead of chats.", rich_help_panel=REQUESTS
        ),
    ] = False,
    voice: Annotated[
        str | None,
        typer.Option(
            "--voice",
            help="Request spoken responses to chats in this voice. With --speech: the voice.",
            rich_help_panel=REQUESTS,
        ),
    ] = None,
    max_tokens: Annotated[
        int,
        typer.Option(
            "--max-tokens",
            min=0,
            help="Maximum number of tokens in a chat response. 0: the default of the app.",
            rich_help_panel=REQUESTS,
        ),
    ] = 64,
    ignore_eos: Annotated[
        bool,
        typer.Option("--ignore-eos", help="Generate exactly --max-tokens tokens per chat.", rich_help_panel=REQUESTS),
    ] = False,
    stream: Annotated[
        bool, typer.Option("--stream/--no-stream", help="Stream the responses.", rich_help_panel=REQUESTS)
    ] = True,
    warmup: Annotated[
        int,
        typer.Option(
            "--warmup", min=0, max=10_000, help="Number of unmeasured requests at the start.", rich_help_panel=LOAD
        ),
    ] = 1,
    seed: Annotated[int, typer.Option("--seed", help="Seed of random words and arrivals.", rich_help_panel=LOAD)] = 0,
    slo: Annotated[
        str | None,
        typer.Option("--slo", help="Objectives for the goodput: ttft=200ms,ttfa=400ms,tbt=100ms,tpot=50ms,e2e=2s."),
    ] = None,
    timeout: Annotated[
        float, typer.Option("--timeout", min=0.1, max=1_000_000, help="Timeout of a request in seconds.")
    ] = 120.0,
    save: Annotated[
        Path | None,
        typer.Option("--save", dir_okay=False, help="Write the result, including each request, to a JSON file."),
    ] = None,
    url: Url = None,
    json: Json = False,
) -> None:
    """Measure the latencies, throughput and goodput of an app under load.

    Ctrl-C stops the measurement and shows the results so far.
    """
    from cornserve.bench.requests import RequestError
    from cornserve.bench.run import WarmUpError
    from cornserve.bench.settings import BenchSettings, BenchSettingsError

    if save is not None:
        check_file(save)
    try:
        settings = BenchSettings(
            app=app,
            concurrency=concurrency,
            rate=rate,
            burstiness=burstiness,
            requests=requests,
            duration=duration,
            prompt=prompt,
            prompt_words=prompt_words,
            dataset=dataset,
            workload=workload,
            recorded=recorded or None,
            compare=True if compare or (compare is None and recorded) else None,
            server=server,
            request=request,
            size=size,
            steps=steps,
            speech=speech or None,
            voice=voice,
            max_tokens=max_tokens,
            ignore_eos=ignore_eos,
            stream=stream,
            warmup=warmup,
            seed=seed,
            slo=slo,
            timeout=timeout,
        )
        with open_client(ctx, url) as client:
            result = _measure(settings, client)
    except (RequestError, BenchSettingsError, WarmUpError) as error:
        raise CliError(str(error)) from error
    try:
        if save is not None:
            write_file(expanded(save), result.model_dump_json(indent=2).encode() + b"\n")
    finally:
        _show(result, json)
    if result.interrupted:
        raise typer.Exit(130)
    if not result.requests.answered:
        raise CliError(
            f"none of the {result.requests.sent} requests to {app!r} was answered: see the errors above, and "
            f"`cornserve logs {app}`"
        )


def _measure(settings: BenchSettings, client: Client) -> BenchResult:
    import asyncio
    from functools import partial

    import uvloop

    from cornserve.bench.live_display import show_progress
    from cornserve.bench.result import BenchResult, compare_runs
    from cornserve.bench.run import run

    sources = [settings.request_source(number) for number in range(2 if settings.compare else 1)]
    settings.shape()
    check_serves(client, settings.app)
    results: list[BenchResult] = []
    show = partial(show_progress, console=stderr())
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        for requests in sources:
            load = runner.run(run(client.address, requests, settings, show))
            results.append(BenchResult.from_run(load, settings, client.url))
            if load.is_stopped:
                break
    if len(results) == 2:
        results[1].noise = compare_runs(*results)
    return results[-1]


def _show(result: BenchResult, json: bool) -> None:
    from cornserve.bench.report import render_result

    if json:
        print_json(result)
    else:
        stdout().print(render_result(result))
