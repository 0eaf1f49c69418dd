"""Request types: requests that need the same components have the same type [C §4.1]."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from random import Random

from pydantic import Field

from cornserve_planner.errors import InvalidInputError
from cornserve_planner.files.document import DocumentPart
from cornserve_planner.model.graph import RequestType
from cornserve_planner.requests.request import Modality, WorkloadRequest
from cornserve_planner.requests.request_sizes import RequestSizes, request_sizes


class Modalities(DocumentPart):
    """The components that each input and output modality needs. Text needs only the components in `always`."""

    always: tuple[str, ...] = ()
    inputs: dict[Modality, tuple[str, ...]] = Field(default={})
    outputs: dict[Modality, tuple[str, ...]] = Field(default={})

    @property
    def components(self) -> frozenset[str]:
        """The components that run always or for any modality."""
        return frozenset(self.always).union(*self.inputs.values(), *self.outputs.values())

    def needed_by(self, request: WorkloadRequest) -> frozenset[str]:
        """Raises `InvalidInputError` if the model does not support one of the request's modalities."""
        needed = set(self.always)
        for kind, known, wanted in (
            ("input", self.inputs, request.input_modalities),
            ("output", self.outputs, request.output_modalities),
        ):
            for modality in wanted:
                if modality not in known and modality != "text":
                    raise InvalidInputError(
                        f"request at {request.arrival:g} s",
                        f"has {modality} {kind}, which the model does not support: remove it, or use another model",
                    )
                needed.update(known.get(modality, ()))
        return frozenset(needed)

    def request_type(self, components: frozenset[str]) -> RequestType:
        """Returns a type named after its components, in the order of their declaration."""
        order = [*self.always, *_flat(self.inputs), *_flat(self.outputs)]
        return RequestType("+".join(sorted(components, key=order.index)), components)


MAX_SAMPLE = 20_000
"""The number of requests of a type whose sizes are kept. It bounds the memory for a file of any length."""


class WorkloadSample:
    """Counts the requests of each type, and keeps the sizes of a uniform sample of them [Vitter 1985, algorithm R]."""

    def __init__(self, modalities: Modalities) -> None:
        self._modalities = modalities
        self._counts: Counter[frozenset[str]] = Counter()
        self._sizes: dict[frozenset[str], list[RequestSizes]] = {}
        self._random = Random(0)

    def add(self, request: WorkloadRequest) -> None:
        components = self._modalities.needed_by(request)
        self._counts[components] += 1
        kept = self._sizes.setdefault(components, [])
        if len(kept) < MAX_SAMPLE:
            kept.append(request_sizes(request))
        elif (place := self._random.randrange(self._counts[components])) < MAX_SAMPLE:
            kept[place] = request_sizes(request)

    @property
    def count(self) -> int:
        """The number of requests."""
        return self._counts.total()

    def shares(self) -> dict[RequestType, float]:
        """Returns the share of each type, the largest first. Their sum is 1."""
        if not self.count:
            raise InvalidInputError("requests", "must not be empty: give at least one request")
        return {
            self._modalities.request_type(components): count / self.count
            for components, count in self._counts.most_common()
        }

    def sizes(self) -> dict[str, tuple[RequestSizes, ...]]:
        """Returns the sizes of the sample of each type, by its name."""
        return {self._modalities.request_type(kind).name: tuple(sizes) for kind, sizes in self._sizes.items()}


def _flat(groups: dict[Modality, tuple[str, ...]]) -> Iterable[str]:
    return (component for components in groups.values() for component in components)
