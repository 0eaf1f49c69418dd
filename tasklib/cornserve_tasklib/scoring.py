"""Cross-encoders, which score how relevant documents are to queries."""

from __future__ import annotations

from typing import Annotated, Self

from annotated_types import Ge, MaxLen, MinLen
from pydantic import BaseModel, ConfigDict, model_validator

from cornserve.task import Output, Task, UnitTask
from cornserve_policies.input_size import InputSize
from cornserve_tasklib.embedding import MAX_INPUTS, Text
from cornserve_tasklib.engine import EngineOptions, EngineSettings
from cornserve_tasklib.sampling_fields import CHARACTERS_PER_TOKEN, STRICT

MAX_CHARACTERS = 32_000_000
"""Maximum number of characters of all pairs. The query of a pair counts, too, because each pair is tokenized."""

Texts = Annotated[list[Text], MinLen(1), MaxLen(MAX_INPUTS)]
Documents = Annotated[list[str], MinLen(1), MaxLen(MAX_INPUTS)]
"""Texts that may be empty, as passages of a search often are."""


class ScoringOptions(BaseModel):
    """The optional fields of a `ScoringRequest`, with vLLM's names."""

    model_config = STRICT | ConfigDict(frozen=True)

    truncate_prompt_tokens: Annotated[int, Ge(-1)] | None = None
    """Truncates each pair to this number of tokens; -1 stands for the model's context length. By default, a pair that
    exceeds the context length is an error."""
    max_tokens_per_query: Annotated[int, Ge(0)] = 0
    """Truncates queries to this number of tokens. 0 stands for no limit."""
    max_tokens_per_doc: Annotated[int, Ge(0)] = 0
    """Truncates documents to this number of tokens. 0 stands for no limit."""
    use_activation: bool | None = None
    """Whether the model's activation function, usually the sigmoid, is applied to the scores. Defaults to true."""


class ScoringRequest(ScoringOptions):
    """Pairs of a query and a document: one query with each document, or each query with the document at its index."""

    queries: Texts
    """One query, or one for each document."""
    documents: Documents
    """The documents."""

    @model_validator(mode="after")
    def _check_pairs(self) -> Self:
        if len(self.queries) not in (1, len(self.documents)):
            raise ValueError(
                f"queries: {len(self.queries)} for {len(self.documents)} documents: give one query, or one for each "
                "document"
            )
        characters = sum(len(query) + len(document) for query, document in self.pairs)
        if characters > MAX_CHARACTERS:
            raise ValueError(f"documents: the pairs have {characters} characters: send at most {MAX_CHARACTERS}")
        return self

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """The query and the document of each score."""
        queries = self.queries if len(self.queries) > 1 else self.queries * len(self.documents)
        return list(zip(queries, self.documents, strict=True))

    @property
    def size(self) -> InputSize:
        """The size, of which the tokens of texts are estimated."""
        pairs = self.pairs
        tokens = sum((len(query) + len(document)) // CHARACTERS_PER_TOKEN for query, document in pairs)
        return InputSize(text=tokens, items=len(pairs))


class ScoringResponse(Output):
    """The scores of a `ScoringRequest`."""

    scores: list[float]
    """The score of each pair, in order."""
    prompt_tokens: int
    """The number of tokens of all pairs."""


class ScoringTask(EngineSettings, UnitTask[ScoringRequest, ScoringResponse]):
    """Runs a cross-encoder on vLLM."""

    executor = "scoring"

    chat_template: str | None = None
    """A Jinja template that renders a pair: messages of the roles `query` and `document`. Some models derived from
    language models need one."""

    def size(self, request: ScoringRequest) -> InputSize:
        return request.size

    def post_init(self) -> None:
        if self.options.lora_modules:
            raise ValueError("lora_modules: a cross-encoder has no LoRA adapters: remove the option")


class Score(Task[ScoringRequest, ScoringResponse]):
    """Scores documents with one model."""

    model_id: str
    """A Hugging Face id, or the path of a model directory."""
    revision: str | None = None
    """See `ScoringTask.revision`."""
    chat_template: str | None = None
    """See `ScoringTask.chat_template`."""
    options: EngineOptions = EngineOptions()
    """Options of the engine."""

    def post_init(self) -> None:
        self.scoring = ScoringTask(
            model_id=self.model_id, revision=self.revision, chat_template=self.chat_template, options=self.options
        )

    def invoke(self, request: ScoringRequest) -> ScoringResponse:
        return self.scoring.invoke(request)
