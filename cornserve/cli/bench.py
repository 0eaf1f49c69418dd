"""`cornserve bench`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cornserve.cli.console import Problem, emit, stderr, stdout
from cornserve.cli.options import AppName, Json, Url

if TYPE_CHECKING:
    from cornserve.bench.result import Result
    from cornserve.bench.settings import Settings


def bench(
    app: AppName,
    concurrency: Annotated[
        int | None,
        typer.Option("--concurrency", "-c", min=1, help="Requests in flight. By default 8, or a --rate."),
    ] = None,
    rate: Annotated[
        float | None,
        typer.Option("--rate", min=0.001, max=1_000_000, help="Requests per second, however many are in flight."),
    ] = None,
    burstiness: Annotated[
        float,
        typer.Option(
            "--burstiness", min=0.01, max=1_000_000, help="With --rate. 1: Poisson; less: in bursts; more: evenly."
        ),
    ] = 1.0,
    requests: Annotated[
        int | None, typer.Option("--requests", "-n", min=1, help="By default 100, or a --duration.")
    ] = None,
    duration: Annotated[
        float | None, typer.Option("--duration", min=0.1, max=1_000_000, help="Seconds in which requests are sent.")
    ] = None,
    prompt: Annotated[str | None, typer.Option("--prompt", help="Chats with this question, always the same.")] = None,
    prompt_words: Annotated[
        int | None,
        typer.Option("--prompt-words", min=1, help="Chats with so many random words; by default 50."),
    ] = None,
    dataset: Annotated[
        Path | None,
        typer.Option("--dataset", help='Chats of a file, a line each: {"prompt": "…"} or {"messages": […]}, options.'),
    ] = None,
    request: Annotated[
        Path | None,
        typer.Option("--request", help="The app's own request, a JSON file; or several, a line each (.jsonl)."),
    ] = None,
    max_tokens: Annotated[
        int, typer.Option("--max-tokens", min=0, help="Of one answer to a chat; 0: as the app likes.")
    ] = 64,
    ignore_eos: Annotated[
        bool, typer.Option("--ignore-eos", help="Chats whose answers are as long as --max-tokens says.")
    ] = False,
    stream: Annotated[bool, typer.Option("--stream/--no-stream", help="Whether answers come in pieces.")] = True,
    warmup: Annotated[int, typer.Option("--warmup", min=0, help="Requests before those that count.")] = 1,
    seed: Annotated[int, typer.Option("--seed", help="Of random words and arrivals.")] = 0,
    slo: Annotated[
        str | None, typer.Option("--slo", help="What counts as good: ttft=200ms,tbt=100ms,tpot=50ms,e2e=2s.")
    ] = None,
    timeout: Annotated[
        float, typer.Option("--timeout", min=0.1, max=1_000_000, help="Seconds until a request has failed.")
    ] = 120.0,
    save: Annotated[
        Path | None, typer.Option("--save", dir_okay=False, help="Write the result, with every request, as JSON.")
    ] = None,
    url: Url = None,
    json: Json = False,
) -> None:
    """Measure an app under load: latencies, throughput, and how much of it is good.

    Ctrl-C ends it, and shows what there is by then.
    """
    from cornserve.bench.requests import RequestError
    from cornserve.bench.run import WarmUpError
    from cornserve.bench.settings import Settings, SettingsError

    try:
        settings = Settings(
            app=app,
            concurrency=concurrency,
            rate=rate,
            burstiness=burstiness,
            requests=requests,
            duration=duration,
            prompt=prompt,
            prompt_words=prompt_words,
            dataset=dataset,
            request=request,
            max_tokens=max_tokens,
            ignore_eos=ignore_eos,
            stream=stream,
            warmup=warmup,
            seed=seed,
            slo=slo,
            timeout=timeout,
        )
        result = _measure(settings, url)
    except (RequestError, SettingsError, WarmUpError) as error:
        raise Problem(str(error)) from error
    if save is not None:
        _write(result, save)
    _show(result, json)
    if result.interrupted:
        raise typer.Exit(130)
    if not result.requests.answered:
        raise Problem("no request was answered")


def _measure(settings: Settings, url: str | None) -> Result:
    import asyncio
    from functools import partial

    import uvloop

    from cornserve.bench.live import watch
    from cornserve.bench.result import Result
    from cornserve.bench.run import run
    from cornserve.client.address import GatewayAddress

    address = GatewayAddress.resolve(url)
    work = settings.work()
    _check_served(settings.app, address.url)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        load = runner.run(run(address, work, settings, partial(watch, console=stderr())))
    return Result.of(load, settings, address.url)


def _check_served(app: str, url: str) -> None:
    from cornserve.client import Client

    with Client(url) as client:
        models = client.models()
    if app not in models:
        raise Problem(f"{app!r} is not served at {url}; served: {', '.join(sorted(models)) or 'nothing'}")


def _write(result: Result, path: Path) -> None:
    try:
        path.expanduser().write_text(result.model_dump_json(indent=2) + "\n")
    except OSError as error:
        raise Problem(f"cannot write {path}: {error.strerror}") from error


def _show(result: Result, json: bool) -> None:
    from cornserve.bench.report import report

    if json:
        emit(result)
    else:
        stdout().print(report(result))
