"""The synchronous client, from `scripts/sync_client.py`: do not edit."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Self, TypeVar, Unpack

import httpx2 as httpx
from pydantic import BaseModel

from cornserve.app.app import App
from cornserve.app.costs import CostReport
from cornserve.app.event import AppEvent
from cornserve.app.graph import AppGraph
from cornserve.app.overview import LiveApp, Overview
from cornserve.app.record import AppView, EngineTokens, ReplicaLog, UnreadableApp
from cornserve.app.run_record import RunRecord
from cornserve.app.spec import AppSpec
from cornserve.client import calls, responses, retries
from cornserve.client.address import GatewayAddress
from cornserve.client.app_watch import PAUSE_SECONDS, AppLoadWait, AppWatch, is_deployed_generation, require_serving
from cornserve.client.arguments import check_timeout, usable_environment
from cornserve.client.calls import ApiCall, Messages
from cornserve.client.cluster import open_cluster
from cornserve.client.deadline import Deadline
from cornserve.client.deploy_target import DeployOptions, DeployTarget, resolve_target
from cornserve.client.errors import (
    AppDeletedError,
    ClientClosedError,
    ClientError,
    DisconnectedError,
    ResponseTimeoutError,
    response_error,
    translated_errors,
    unexpected_response,
)
from cornserve.client.progress import Progress
from cornserve.client.responses import (
    ChatDecoder,
    ChatDelta,
    EventDecoder,
    ImageDecoder,
    InvocationDecoder,
    ResponseParser,
    StreamItem,
    StreamResult,
    TextDecoder,
)
from cornserve.client.sse import ServerSentEvent, SseParser

T = TypeVar("T")


class Client:
    """A client of the gateway at `url`. Threads can share a client; a forked process needs its own.

    Args:
        url: by default `CORNSERVE_URL`, else the instance that runs for `CORNSERVE_HOME`, else port 8000 on this
            machine.
        api_key: sent with requests under `/v1`; by default `CORNSERVE_API_KEY`.
        admin_token: sent with requests under `/admin`; by default `CORNSERVE_ADMIN_TOKEN`. If one of the two secrets is
            missing, the other takes its place.
        retries: how often a call is retried if it did not reach the gateway, or if it only reads.

    The constructor and all methods raise a `ClientError`: `ArgumentError` for arguments that cannot be sent. An
    argument of another type than the signature has may raise a `TypeError`. Timeouts are in seconds.
    """

    def __init__(
        self, url: str | None = None, api_key: str | None = None, admin_token: str | None = None, *, retries: int = 2
    ) -> None:
        self._connect(GatewayAddress.resolve(url, api_key, admin_token), retries)

    @classmethod
    def for_cluster(
        cls,
        context: str | None = None,
        namespace: str | None = None,
        api_key: str | None = None,
        admin_token: str | None = None,
        *,
        retries: int = 2,
    ) -> Self:
        """Returns a client of the gateway in a Kubernetes cluster, through a port-forward until it is closed.

        Args:
            context: a context of the kubeconfig; by default, its current context, or in a pod the pod's cluster.
            namespace: the namespace of the installation; by default, that of the context.
            admin_token: by default, the one in the Secret of the installation if you may read it, else
                `CORNSERVE_ADMIN_TOKEN`.
        Raises:
            ClusterError: the context does not exist, a permission is missing, or the namespace has no gateway.
        """
        client = cls.__new__(cls)
        client._connect(open_cluster(context, namespace, api_key, admin_token), retries)
        return client

    @property
    def url(self) -> str:
        return self._address.url

    @property
    def address(self) -> GatewayAddress:
        return self._address

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()
        self._address.close()

    def deploy(
        self,
        target: App | AppSpec | DeployTarget | Path | str,
        *,
        wait: bool = True,
        timeout: float | None = None,
        on_progress: Callable[[str], object] = lambda line: None,
        **options: Unpack[DeployOptions],
    ) -> AppView:
        """Creates the app, or replaces its current generation, and waits until it serves.

        Args:
            target: an `App` with available source (see `cornserve.client.source_capture`), a `.py` file, source text of
                several lines, a model directory, a Hugging Face id, or an `AppSpec`.
            wait: whether to wait. Otherwise the app is only stored: see `follow` and `app`.
            timeout: how long to wait. The deployment continues after a timeout.
            on_progress: receives a line of text for each step, for example `print`.
            options: see `DeployOptions`: `name`, `replicas`, `routing`, `binding`, `shares`, `options`, `revision`,
                `lora`, `drawer`, `media_options`, `allow_paths`, `log_messages` and `plan`.
        Raises:
            DeployTargetError: the target is not valid.
            DeploymentError: the app failed to start. The previous generation continues to serve.
            WaitTimeoutError: the app does not serve yet.
        """
        check_timeout(timeout)
        resolved = resolve_target(target, **options)  # may import the app
        deployed = self._call(calls.deploy(resolved.name, resolved.spec), responses.app_view)
        if not wait:
            return deployed
        progress = Progress()
        view = deployed
        for view in self.follow(deployed, timeout=timeout, on_outage=on_progress):
            for line in progress.update(view):
                on_progress(line)
        return require_serving(view)

    def follow(
        self,
        deployed: AppView,
        *,
        timeout: float | None = None,
        on_outage: Callable[[str], object] = lambda line: None,
    ) -> Generator[AppView, None, None]:
        """Yields the app after each change, until the deployed generation serves or has failed.

        Raises `AppDeletedError` or `WaitTimeoutError` if it does neither.
        """
        with closing(self.events(deployed.name, timeout=timeout, on_outage=on_outage)) as events:
            for view in events:
                if is_deployed_generation(view, deployed):
                    yield view
                    if view.settled:
                        return
        raise AppDeletedError(deployed.name)

    def events(
        self, app: str, *, timeout: float | None = None, on_outage: Callable[[str], object] = lambda line: None
    ) -> Generator[AppView, None, None]:
        """Yields the app in its current state and after each change, until it is deleted.

        When the app's phase is "serving", the gateway accepts requests for that generation. A restart of the gateway
        does not end the events.

        Args:
            on_outage: receives a line of text when the gateway becomes unreachable, and when it is reachable again.
        Raises:
            WaitTimeoutError: after `timeout`.
        """
        watch = AppWatch(app, timeout, on_outage)
        while not watch.is_over:
            try:
                with closing(self._events(watch.call())) as events:
                    for event in events:
                        with unexpected_response(self._address.place):
                            view = watch.new_view(event)
                        if view is not None:
                            self._until_loaded(view, watch.deadline)
                            watch.mark_seen(view)
                            yield view
                        if watch.is_over:
                            return
            except ClientError as error:
                watch.handle_error(error)
            time.sleep(PAUSE_SECONDS)

    def apps(self) -> list[AppView]:
        return self._call(calls.apps(), responses.app_views)

    def unreadable_apps(self) -> list[UnreadableApp]:
        """Returns the apps whose records are damaged. `apps` does not contain them."""
        return self._call(calls.apps(), responses.unreadable_apps)

    def overview(self) -> Overview:
        """Returns all apps with their rates, latencies and errors, what needs attention, and the last events."""
        return self._call(calls.overview(), responses.overview)

    def costs(self, minutes: float = 60) -> CostReport:
        """Returns the GPU seconds and dollars of apps and their executors in the last minutes, at most 60."""
        return self._call(calls.costs(minutes), responses.cost_report)

    def live(self, app: str) -> LiveApp:
        """Returns the executor graph of an app with the present load of its replicas, edges and paths."""
        return self._call(calls.live(app), responses.live_app)

    def app(self, name: str, *, memory: bool = False) -> AppView:
        """Returns the app's specification and status.

        Args:
            memory: also read the shared memory that the replicas have for tensors.
        """
        return self._call(calls.app(name, memory), responses.app_view)

    def engines(self, app: str) -> dict[str, EngineTokens]:
        """Returns the limits and the tokens of the engines of the app's language models, by replica."""
        return self._call(calls.engines(app), responses.engine_tokens)

    def graph(self, app: str) -> AppGraph:
        """Returns the executor graph of the app: components, deployment options, request types and paths."""
        return self._call(calls.graph(app), AppGraph.model_validate)

    def scale(
        self,
        app: str,
        replicas: int | None = None,
        *,
        executors: Mapping[str, int] | None = None,
        rate: float | None = None,
        gpus: int | None = None,
        hold_seconds: float | None = None,
    ) -> AppView:
        """Sets the number of replicas of each executor, or the cells of a planned app.

        Give one of the arguments, `hold_seconds`, or both.

        Does not wait: see `events` and `AppView.is_scaled`.

        Args:
            executors: the numbers of replicas of single executors, by name.
            rate: the requests per second to serve with cells on the fewest GPUs.
            gpus: the number of GPUs on which cells serve the most requests.
            hold_seconds: the time in which the load of the app changes nothing, from now on. With 0, the app follows
                its load at once.
        """
        return self._call(calls.scale(app, replicas, executors, rate, gpus, hold_seconds), responses.app_view)

    def approve(self, app: str) -> AppView:
        """Runs the cells that the app's adaptation to its load proposes. Does not wait: see `scale`."""
        return self._call(calls.approve(app), responses.app_view)

    def restart(self, app: str, executors: Sequence[str] = ()) -> AppView:
        """Restarts the executors of the app, or those with these names, by a new generation.

        Does not wait: see `follow`.
        """
        return self._call(calls.restart(app, executors), responses.app_view)

    def delete(self, app: str) -> None:
        self._call(calls.delete(app), responses.json_document)

    def logs(self, app: str, lines: int = 100, *, replica: str | None = None) -> list[ReplicaLog]:
        """Returns the last lines of each replica's log, or of one."""
        return self._call(calls.logs(app, lines, replica), responses.replica_logs)

    def history(self, app: str) -> list[AppEvent]:
        """Returns what has happened to the app: on Kubernetes its Events, on one machine its current state."""
        return self._call(calls.history(app), responses.app_events)

    def models(self) -> list[str]:
        """Returns the names of the apps for which the gateway accepts requests."""
        return self._call(calls.models(), responses.model_ids)

    def invoke(self, app: str, request: BaseModel | Mapping[str, Any], *, timeout: float | None = None) -> Any:
        """Returns the app's response as parsed JSON, with `None` for streams."""
        return self._call(calls.invoke(app, request, timeout), responses.json_document)

    def record(self, app: str, request: BaseModel | Mapping[str, Any], *, timeout: float | None = None) -> RunRecord:
        """Returns the app's response, and its calls of unit tasks with their outputs. Needs the admin token."""
        return self._call(calls.record(app, request, timeout), responses.run_record)

    def stream(
        self, app: str, request: BaseModel | Mapping[str, Any], *, timeout: float | None = None
    ) -> Generator[StreamItem | StreamResult, None, None]:
        """Yields the items of the response's streams as they arrive, then the response."""
        return self._stream(calls.invoke(app, request, timeout, stream=True), InvocationDecoder())

    def chat(
        self, app: str, messages: Messages, *, timeout: float | None = None, **options: Any
    ) -> Generator[str, None, None]:
        """Yields the text of the response in chunks. `options` are those of OpenAI's chat completions (`max_tokens`,
        …).
        """
        return self._stream(calls.chat(app, messages, options, timeout, stream=True), TextDecoder())

    def chat_deltas(
        self, app: str, messages: Messages, *, timeout: float | None = None, **options: Any
    ) -> Generator[ChatDelta, None, None]:
        """Yields the parts of the response: chunks of text, and the images of an app that draws. See `chat`."""
        return self._stream(calls.chat(app, messages, options, timeout, stream=True), ChatDecoder())

    def complete(self, app: str, messages: Messages, *, timeout: float | None = None, **options: Any) -> Any:
        """Returns an OpenAI chat completion as parsed JSON."""
        return self._call(calls.chat(app, messages, options, timeout, stream=False), responses.json_document)

    def transcribe(
        self,
        app: str,
        audio: Path | bytes,
        *,
        translate: bool = False,
        timeout: float | None = None,
        **options: Any,
    ) -> Any:
        """Returns an OpenAI transcription of a file, or its translation to English, as parsed JSON.

        `options` are those of OpenAI's transcriptions (`language`, …).
        """
        call = calls.transcribe(app, audio, options, timeout, translate=translate)
        return self._call(call, responses.json_document)

    def generate_images(self, app: str, prompt: str, *, timeout: float | None = None, **options: Any) -> Any:
        """Returns an OpenAI image generation as parsed JSON.

        `options` are those of OpenAI's image generations (`size`, …) and of Cornserve (`seed`, …).
        """
        call = calls.generate_images(app, prompt, options, timeout, stream=False)
        return self._call(call, responses.json_document)

    def image_events(
        self, app: str, prompt: str, *, timeout: float | None = None, **options: Any
    ) -> Generator[dict[str, Any], None, None]:
        """Yields the events of an image generation as parsed JSON: previews (`partial_images`), steps (`progress`), and
        the images."""
        call = calls.generate_images(app, prompt, options, timeout, stream=True)
        return self._stream(call, ImageDecoder(options.get("n") or 1))

    def edit_image(
        self, app: str, image: Path | bytes, prompt: str, *, timeout: float | None = None, **options: Any
    ) -> Any:
        """Returns an OpenAI image edit as parsed JSON.

        `options` are those of OpenAI's image edits (`size`, …) and of Cornserve (`seed`, …).
        """
        call = calls.edit_image(app, image, prompt, options, timeout, stream=False)
        return self._call(call, responses.json_document)

    def edit_events(
        self, app: str, image: Path | bytes, prompt: str, *, timeout: float | None = None, **options: Any
    ) -> Generator[dict[str, Any], None, None]:
        """Yields the events of an image edit as parsed JSON, like `image_events`."""
        call = calls.edit_image(app, image, prompt, options, timeout, stream=True)
        yield from self._stream(call, ImageDecoder(options.get("n") or 1))

    def speak(
        self, app: str, text: str, *, timeout: float | None = None, **options: Any
    ) -> Generator[bytes, None, None]:
        """Yields the parts of an audio file while the model speaks.

        `options` are those of OpenAI's speech (`voice`, `response_format`, `speed`) and of Cornserve (`seed`).
        """
        return self._bytes(calls.speak(app, text, options, timeout))

    def _connect(self, address: GatewayAddress, retries: int) -> None:
        self._address = address
        self._retries = retries
        with usable_environment():
            self._http = httpx.Client(verify=address.tls, trust_env=not address.is_loopback, limits=calls.LIMITS)

    def _until_loaded(self, view: AppView, deadline: Deadline) -> None:
        wait = AppLoadWait(view, deadline)
        while wait.is_needed and not wait.is_over(self._call(calls.models(), responses.loaded_models)):
            time.sleep(PAUSE_SECONDS)

    def _call(self, call: ApiCall, parse: ResponseParser[T]) -> T:
        def attempt() -> T:
            with closing(self._send(call)) as response:
                with translated_errors(self._address.place, call.read_timeout):
                    return responses.parse_response(self._address.place, response.read(), parse)

        return self._with_retries(call, attempt)

    def _stream(self, call: ApiCall, decoder: EventDecoder[T]) -> Generator[T, None, None]:
        with closing(self._events(call)) as events:
            for event in events:
                yield from responses.decode_event(self._address.place, decoder, event)
                if decoder.is_complete:
                    return
        raise DisconnectedError(self._address.place)

    def _events(self, call: ApiCall) -> Generator[ServerSentEvent, None, None]:
        parser = SseParser()
        with closing(self._bytes(call)) as parts:
            for data in parts:
                yield from parser.feed(data)

    def _bytes(self, call: ApiCall) -> Generator[bytes, None, None]:
        deadline = Deadline(call.read_timeout if call.timeout else None)
        response = self._with_retries(call, lambda: self._send(call))
        with closing(response):
            with translated_errors(self._address.place, call.read_timeout):
                for data in response.iter_bytes():
                    if deadline.is_over:
                        raise ResponseTimeoutError(self._address.place, deadline.seconds)
                    yield data

    def _with_retries(self, call: ApiCall, attempt: Callable[[], T]) -> T:
        for pause in retries.pauses(self._retries):
            try:
                return attempt()
            except ClientError as error:
                if not retries.is_safe(call, error):
                    raise
            time.sleep(pause)
        return attempt()

    def _send(self, call: ApiCall) -> httpx.Response:
        """Returns a successful response with an unread body. Raises `ApiStatusError`."""
        if self._http.is_closed:
            raise ClientClosedError
        with translated_errors(self._address.place, call.read_timeout):
            request = self._http.build_request(
                call.method,
                self.url + call.path,
                content=call.body,
                headers=self._address.headers(call),
                timeout=call.timeouts,
            )
            response = self._http.send(request, stream=True)
            if response.is_success:
                return response
            with closing(response):
                raise response_error(response.status_code, response.read())
