"""Definitions of tasks and apps, and the errors of wrong ones."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from datetime import date, datetime
from functools import wraps
from typing import Annotated, Any, Generic, TypeVar

import pytest
from pydantic import AwareDatetime, BaseModel, EmailStr, NaiveDatetime, PastDate, ValidationError
from typing_extensions import TypedDict

from cornserve import App, ExecutorSpec, Output, Stream, Task, Tensor, UnitTask
from cornserve.task.errors import DefinitionError
from cornserve.task.recording import Recording
from cornserve.task.unit import unit_tasks
from cornserve_policies.replayable_random import ReplayableRandom
from tests.unit.task.shout_task import Shout, ShoutOutput, ShoutRequest

Item = TypeVar("Item")


class TwoVoices(Task[str, str]):
    times: int = 2

    def post_init(self) -> None:
        if self.times < 1:
            raise ValueError("times must be positive")
        self.all = [Shout(), {"other": Shout(voice="other")}]
        self.second = Shout()

    def invoke(self, request: str) -> str:
        return request * self.times


def test_unit_tasks_are_found_in_attributes_lists_and_dicts() -> None:
    assert [unit.voice for unit in unit_tasks(TwoVoices()) if isinstance(unit, Shout)] == ["plain", "other", "plain"]


def test_equal_unit_tasks_share_an_executor_spec_and_others_do_not() -> None:
    assert Shout().key == Shout().key
    assert Shout().key != Shout(voice="other").key
    assert len({unit.key for unit in unit_tasks(TwoVoices())}) == 2


def test_a_spec_key_is_a_kubernetes_name() -> None:
    assert ExecutorSpec(executor="llm", config={"a": 1}).key.startswith("llm-")
    assert ExecutorSpec(executor="llm", config={"a": 1, "b": 2}) == ExecutorSpec(
        executor="llm", config={"b": 2, "a": 1}
    )
    assert (
        ExecutorSpec(executor="llm", config={"a": 1, "b": 2}).key
        == ExecutorSpec(executor="llm", config={"b": 2, "a": 1}).key
    )
    assert ExecutorSpec(executor="llm", gpus=1).key != ExecutorSpec(executor="llm", gpus=2).key


def test_an_asynchronous_invoke_is_refused() -> None:
    with pytest.raises(DefinitionError, match=r"Later\.invoke is `async def`: define it with `def`"):

        class Later(Task[str, str]):
            async def invoke(self, request: str) -> str:  # type: ignore[override]
                return request


@pytest.mark.parametrize("method", ["__init__", "__new__", "__post_init__"])
def test_a_task_that_is_built_like_another_class_refers_to_post_init(method: str) -> None:
    with pytest.raises(DefinitionError, match=rf"Late defines {method}: .*build its tasks in post_init"):
        type("Late", (Task[str, str],), {method: lambda self: None, "__module__": __name__})


def test_a_task_that_inherits_an_init_refers_to_post_init() -> None:
    class Mixin:
        def __init__(self) -> None:
            self.greeting = "hello"

    problem = r"Late inherits from Mixin, which defines __init__: .*build its tasks in post_init"
    with pytest.raises(DefinitionError, match=problem):
        type("Late", (Mixin, Task[str, str]), {"__module__": __name__})


def test_an_invoke_without_a_request_is_refused() -> None:
    with pytest.raises(DefinitionError, match=r"Late\.invoke takes no request"):

        class Late(Task[str, str]):
            def invoke(self) -> str:  # type: ignore[override]
                return ""


def test_an_app_with_a_task_without_invoke_is_refused() -> None:
    class WithoutInvoke(Task[str, str]):
        def post_init(self) -> None:
            self.shout = Shout()

    class WithInvoke(WithoutInvoke):
        def invoke(self, request: str) -> str:
            return request

    class BuildsWithoutInvoke(WithInvoke):
        def post_init(self) -> None:
            self.inner = WithoutInvoke()

    App(name="a", paths=[WithInvoke()])
    for task in (WithoutInvoke(), BuildsWithoutInvoke()):
        with pytest.raises(DefinitionError, match="WithoutInvoke does not define invoke"):
            App(name="a", paths=[task])


class Ping(Task[str, str]):
    def post_init(self) -> None:
        self.pong = Pong()

    def invoke(self, request: str) -> str:
        return self.pong.respond(request)


class Pong(Task[str, str]):
    def post_init(self) -> None:
        self.ping = Ping()

    def invoke(self, request: str) -> str:
        return self.ping.respond(request)


class Countdown(Task[str, str]):
    left: int
    step: int

    def post_init(self) -> None:
        self.next = Countdown(left=self.left - self.step, step=self.step) if self.left else Shout()

    def invoke(self, request: str) -> str:
        return request


def test_a_task_that_builds_itself_names_the_cycle() -> None:
    with pytest.raises(DefinitionError, match="post_init builds tasks without end: Ping → Pong → Ping"):
        Ping()
    with pytest.raises(DefinitionError, match="post_init builds tasks without end: Countdown → Countdown"):
        Countdown(left=-1, step=1)
    assert len([*unit_tasks(Countdown(left=5, step=1))]) == 1


class Mirror(Task[str, str]):
    outer: Any = None

    def post_init(self) -> None:
        self.inner = self if self.outer is None else Shout()

    def invoke(self, request: str) -> str:
        return request


class Cabinet(Task[str, str]):
    def post_init(self) -> None:
        self.mirrors = [Mirror(outer=self)]

    def invoke(self, request: str) -> str:
        return request


def test_a_task_that_contains_itself_names_the_cycle() -> None:
    with pytest.raises(DefinitionError, match="a task contains itself: Mirror → Mirror: remove the attribute"):
        Mirror()
    with pytest.raises(DefinitionError, match="a task contains itself: Cabinet → Mirror → Cabinet: remove"):
        Cabinet()


class LoudRequest(ShoutRequest):
    pass


class LoudOutput(ShoutOutput):
    pass


class Box(BaseModel, Generic[Item]):
    item: Item


class Fields(TypedDict):
    text: str


def define(request_type: Any, response_type: Any, taken: Any, returned: Any) -> type[Task[Any, Any]]:
    """Defines a task whose `invoke` has the annotations."""

    def invoke(self: Any, request: Any) -> Any:
        return {"text": request} if response_type is Fields else request

    invoke.__annotations__ = {"request": taken, "return": returned}
    task: type[Task[Any, Any]] = type(
        "Given", (Task[request_type, response_type],), {"invoke": invoke, "__module__": __name__}
    )
    return task


@pytest.mark.parametrize(
    ("taken", "returned"),
    [
        (ShoutRequest, ShoutOutput),
        (BaseModel, LoudOutput),
        (object, Any),
        (Any, object),
        (Annotated[ShoutRequest | str, "x"], BaseModel),
        ("ShoutRequest", "Generator[Any, None, ShoutOutput]"),
        (ShoutRequest, Generator[Any, None, LoudOutput] | ShoutOutput),
        (ShoutRequest, Iterator[Any]),
        (ShoutRequest, Generator),
        (Item, Item),
        (int, "Unknown"),
        ("1 +", "unknown.Name"),
    ],
    ids=str,
)
def test_annotations_that_agree_with_the_type_arguments_are_accepted(taken: Any, returned: Any) -> None:
    define(ShoutRequest, ShoutOutput, taken, returned)


@pytest.mark.parametrize(
    ("request_type", "response_type", "taken", "returned"),
    [
        (Any, Any, int, str),
        (list[int], Box[int], list[Any], Box[Any]),
        (Fields, Fields, int, str),
        (int | str, int | str, int | str | None, int),
        (AwareDatetime, NaiveDatetime, datetime, datetime),
        (datetime, datetime, NaiveDatetime, AwareDatetime),
        (EmailStr, EmailStr | None, str, str | None),
        (PastDate, PastDate, date, date),
    ],
)
def test_annotations_that_cannot_be_compared_are_accepted(
    request_type: Any, response_type: Any, taken: Any, returned: Any
) -> None:
    define(request_type, response_type, taken, returned)


@pytest.mark.parametrize(
    ("taken", "returned", "message"),
    [
        (int, ShoutOutput, "`request: int`, but the request type of the task is ShoutRequest"),
        ("int", ShoutOutput, "`request: int`, but the request type of the task is ShoutRequest"),
        (LoudRequest, ShoutOutput, "`request: LoudRequest`, but the request type of the task is ShoutRequest"),
        (int | str, ShoutOutput, r"`request: int \| str`, but the request type of the task is ShoutRequest"),
        (ShoutRequest, str, "`-> str`, but the response type of the task is ShoutOutput"),
        (ShoutRequest, None, "`-> NoneType`, but the response type of the task is ShoutOutput"),
        (
            ShoutRequest,
            ShoutOutput | str,
            r"`-> .*ShoutOutput \| str`, but the response type of the task is ShoutOutput",
        ),
        (ShoutRequest, "Generator[ShoutOutput, None, str]", "`-> .*Generator.*`, but the response type of the task"),
    ],
)
def test_annotations_that_contradict_the_type_arguments_are_refused(taken: Any, returned: Any, message: str) -> None:
    with pytest.raises(DefinitionError, match=rf"^Given\.invoke has the annotation {message}"):
        define(ShoutRequest, ShoutOutput, taken, returned)


@pytest.mark.parametrize(
    ("request_type", "response_type", "taken", "returned"),
    [(int, float, float, int), (float, complex, complex, float), (int | str, float, float | str, int | float)],
)
def test_an_int_is_also_a_float(request_type: Any, response_type: Any, taken: Any, returned: Any) -> None:
    define(request_type, response_type, taken, returned)

    assert define(float, float, float, float)().respond(1) == 1


def test_a_float_is_not_an_int() -> None:
    with pytest.raises(DefinitionError, match="`request: int`, but the request type of the task is float or int"):
        define(float, str, int, str)
    with pytest.raises(DefinitionError, match="`-> float`, but the response type of the task is int"):
        define(str, int, str, float)


def test_a_decorator_can_pass_other_arguments() -> None:
    def with_prefix(invoke: Callable[[Any, int, str], str]) -> Callable[[Any, str], str]:
        @wraps(invoke)
        def invoke_with_prefix(self: Any, request: str) -> str:
            return invoke(self, 7, request)

        return invoke_with_prefix

    class Prefixed(Task[str, str]):
        @with_prefix
        def invoke(self, prefix: int, request: str) -> str:
            return f"{prefix}{request}"

    assert Prefixed().respond("a") == "7a"


def test_every_type_of_request_must_fit_the_annotation() -> None:
    define(ShoutRequest | int, str, ShoutRequest | int, str)
    with pytest.raises(DefinitionError, match=r"`request: ShoutRequest`, .* ShoutRequest or int"):
        define(ShoutRequest | int, str, ShoutRequest, str)


def test_annotations_can_be_missing() -> None:
    class Bare(Task[ShoutRequest, str]):
        def invoke(self, request):  # type: ignore[no-untyped-def]
            return request.text

    assert Bare().respond(ShoutRequest(text="a")) == "a"


@pytest.mark.parametrize("response_type", [Any, Fields])
def test_responses_of_types_without_instances_are_not_checked(response_type: Any) -> None:
    assert define(Any, response_type, Any, Any)().respond("a") in ("a", {"text": "a"})


def test_tasks_cannot_be_changed_after_they_are_built() -> None:
    with pytest.raises(AttributeError, match="no side effects"):
        TwoVoices().count = 1


def test_invalid_settings_are_rejected() -> None:
    with pytest.raises(ValidationError, match="times must be positive"):
        TwoVoices(times=0)
    with pytest.raises(ValidationError, match="voices"):
        Shout(voices="plain")  # type: ignore[call-arg]


def test_a_unit_task_rejects_a_request_of_another_type() -> None:
    with pytest.raises(TypeError, match="Shout takes the type ShoutRequest, not str"):
        Recording(ReplayableRandom("r")).run("t", lambda: Shout().invoke("text"))  # type: ignore[arg-type]


def test_a_subclass_of_the_request_type_is_serialised_as_the_declared_type() -> None:
    class More(ShoutRequest):
        secret: str = "x"

    recording = Recording(ReplayableRandom("r"))
    recording.run("t", lambda: Shout().invoke(More(text="a", secret="y")))

    assert recording.invocations[0].request == b'{"text":"a"}'


def test_a_mapped_stream_cannot_be_an_input() -> None:
    class Words(BaseModel):
        words: Stream[str]

    class Listen(UnitTask[Words, ShoutOutput]):
        executor = "listen"

    def code() -> ShoutOutput:
        words = Shout().invoke(ShoutRequest(text="a")).words
        return Listen().invoke(Words(words=words.map(str.upper)))

    with pytest.raises(Exception, match="mapped Stream cannot be the input"):
        Recording(ReplayableRandom("r")).run("t", code)


def test_references_inside_other_types_are_rejected_when_the_task_is_defined() -> None:
    class Bad(Output):
        tensors: list[Tensor]

    with pytest.raises(DefinitionError, match=r"Bad.tensors .* must be a separate field"):

        class MakeHidden(UnitTask[ShoutRequest, Bad]):
            executor = "make"


def test_a_unit_task_must_return_an_output() -> None:
    with pytest.raises(DefinitionError, match=r"must return a cornserve.Output, not ShoutRequest"):

        class MakeRequest(UnitTask[ShoutRequest, ShoutRequest]):  # type: ignore[type-var]
            executor = "make"


def test_an_app_checks_its_name() -> None:
    for name in ("", "Upper", "-x", "a b", "x" * 64):
        with pytest.raises(DefinitionError, match="invalid app name"):
            App(name=name, paths=[TwoVoices()])


def test_an_app_needs_paths_that_are_alternatives() -> None:
    class Other(Task[int, str]):
        pass

    with pytest.raises(DefinitionError, match="has no paths"):
        App(name="a", paths=[])
    with pytest.raises(DefinitionError, match="not alternatives: TwoVoices and Other"):
        App(name="a", paths=[TwoVoices(), Other()])
    with pytest.raises(DefinitionError, match="2 paths but 1 shares"):
        App(name="a", paths=[TwoVoices(), TwoVoices()], shares=[1.0])


@pytest.mark.parametrize("paths", [TwoVoices(), TwoVoices, [TwoVoices], "voices", [[TwoVoices()]]])
def test_the_paths_of_an_app_must_be_a_list_of_tasks(paths: Any) -> None:
    with pytest.raises(DefinitionError, match=r"the paths of app 'a' must be a list of tasks, not .*: pass a list"):
        App("a", paths)


def test_an_app_with_an_executor_that_is_not_installed_is_rejected() -> None:
    with pytest.raises(DefinitionError, match=r"no executor 'shout' is installed .*llm"):
        App(name="a", paths=[TwoVoices()]).executor_specs()


class ShapelessUnit(UnitTask):  # type: ignore[type-arg]
    executor = "llm"


class ShapelessTask(Task):  # type: ignore[type-arg]
    pass


@pytest.mark.parametrize("shapeless", [ShapelessUnit, ShapelessTask])
def test_an_app_that_calls_an_untyped_task_is_rejected(shapeless: type[Task[Any, Any]]) -> None:
    class Uses(Task[str, str]):
        def post_init(self) -> None:
            self.inner = [shapeless()]

    with pytest.raises(DefinitionError, match=f"{shapeless.__name__} must derive from"):
        App(name="a", paths=[Uses()])


def test_an_app_without_unit_tasks_is_rejected() -> None:
    class EmptyTask(Task[str, str]):
        def invoke(self, request: str) -> str:
            return request

    with pytest.raises(DefinitionError, match="has no unit task"):
        App(name="a", paths=[EmptyTask()]).executor_specs()
