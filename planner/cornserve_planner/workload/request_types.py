"""Request types: requests that need the same components have the same type [C §4.1]."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from pydantic import Field

from cornserve_planner.document import DocumentPart
from cornserve_planner.errors import InvalidInputError
from cornserve_planner.graph import RequestType
from cornserve_planner.workload.request import Modality, WorkloadRequest
from cornserve_planner.workload.request_sizes import RequestSizes, request_sizes


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


def type_shares(requests: Iterable[WorkloadRequest], modalities: Modalities) -> dict[RequestType, float]:
    """Returns the share of each type, the largest first. Their sum is 1."""
    counts = Counter(modalities.needed_by(request) for request in requests)
    total = counts.total()
    if not total:
        raise InvalidInputError("requests", "must not be empty: give at least one request")
    return {modalities.request_type(components): count / total for components, count in counts.most_common()}


def type_sizes(requests: Iterable[WorkloadRequest], modalities: Modalities) -> dict[str, tuple[RequestSizes, ...]]:
    """Returns the sizes of the requests of each type, by its name."""
    found: dict[frozenset[str], list[RequestSizes]] = {}
    for request in requests:
        found.setdefault(modalities.needed_by(request), []).append(request_sizes(request))
    return {modalities.request_type(components).name: tuple(sizes) for components, sizes in found.items()}


def _flat(groups: dict[Modality, tuple[str, ...]]) -> Iterable[str]:
    return (component for components in groups.values() for component in components)
