"""Random specs, statuses and routes of apps."""

from __future__ import annotations

from datetime import UTC, datetime

from hypothesis import strategies as st
from pydantic import JsonValue

from cornserve.app.adaptation_status import (
    AdaptationStatus,
    AutoscaledLoad,
    CellCount,
    MixShift,
    MixtureProposal,
    PlanProposal,
    TypeRate,
    TypeShare,
)
from cornserve.app.path_weights import MAX_WEIGHT
from cornserve.app.plan import AppPlan
from cornserve.app.plan_resolution import resolve_plan
from cornserve.app.planning import PlanningInputs, WorkloadType
from cornserve.app.record import (
    AppStatus,
    FailureReason,
    GroupStatus,
    Phase,
    ReplicaExit,
    ReplicaState,
    ReplicaStatus,
    Route,
)
from cornserve.app.settings import (
    MAX_REPLICAS,
    AdaptationSettings,
    AppPolicies,
    AutoscaledExecutor,
    AutoscalingSettings,
    ClaimStorage,
    ConfigMapKeyRef,
    DownloadStorage,
    ExecutorOverride,
    HostPathStorage,
    ImageStorage,
    LatencyTargetSettings,
    ModelStorage,
    Rollout,
    SecretKeyRef,
)
from cornserve.app.spec import AppSpec, Restart
from cornserve.task.spec import ExecutorSpec
from cornserve_tasklib.media_options import MediaOptions
from tests.unit.app.plans import cell, graph, plan_document

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
names = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=30)
"""Names of plans, which have no control characters."""
object_names = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,8}[a-z0-9])?(\.[a-z0-9]{1,3})?", fullmatch=True)
# Hypothesis imports a module for this, in which CPython 3.11 can fail while another thread of a test parses code.
object_names.validate()
keys = st.from_regex(r"[A-Za-z0-9._-]{1,10}", fullmatch=True)
relative_paths = st.from_regex(r"[a-zA-Z0-9_-][a-zA-Z0-9._-]{0,5}(/\.?[a-zA-Z0-9_-]{1,5}){0,2}", fullmatch=True)

numbers = st.integers(-(2**63), 2**63 - 1) | st.floats(-(2.0**53), 2.0**53)
"""Numbers that the API server does not change."""
json_values: st.SearchStrategy[JsonValue] = st.recursive(
    st.none() | st.booleans() | numbers | texts,
    lambda values: st.lists(values, max_size=3) | st.dictionaries(texts, values, max_size=3),
    max_leaves=8,
)
json_objects = st.dictionaries(texts, json_values, max_size=4)

storages = st.one_of(
    st.builds(ClaimStorage, claim_name=object_names, path=st.none() | relative_paths).map(
        lambda claim: ModelStorage(persistent_volume_claim=claim)
    ),
    st.builds(
        ImageStorage, reference=st.from_regex(r"[a-z0-9./:@-]{1,20}", fullmatch=True), path=st.none() | relative_paths
    ).map(lambda image: ModelStorage(image=image)),
    st.builds(HostPathStorage, path=relative_paths.map(lambda path: f"/{path}")).map(
        lambda path: ModelStorage(host_path=path)
    ),
    st.builds(
        DownloadStorage,
        cache_claim_name=object_names,
        token_secret_key_ref=st.none() | st.builds(SecretKeyRef, name=object_names, key=keys),
    ).map(lambda download: ModelStorage(download=download)),
)

overrides = st.builds(
    ExecutorOverride,
    name=st.just("*") | st.from_regex(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,6}[A-Za-z0-9])?", fullmatch=True),
    options=json_objects,
    gpu_type=st.none() | st.from_regex(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,6}[A-Za-z0-9])?", fullmatch=True),
    pod_template=st.none() | json_objects,
)

shares = st.dictionaries(texts, st.integers(0, MAX_WEIGHT), min_size=1, max_size=4).filter(
    lambda weights: any(weights.values())
)

media_options = st.builds(
    MediaOptions,
    fps=st.none() | st.floats(0.01, 30),
    max_frames=st.none() | st.integers(2, 768),
    max_pixels=st.none() | st.integers(1, 2**31 - 1),
    max_patches=st.none() | st.integers(1, 1024),
)

sources = st.fixed_dictionaries(
    {"inline": texts},
    optional={
        "allow_paths": st.lists(relative_paths.map(lambda path: f"/{path}"), max_size=3),
        "filename": st.from_regex(r"[A-Za-z0-9_. +-]{1,20}", fullmatch=True),
        "log_messages": st.booleans(),
    },
) | st.fixed_dictionaries({"config_map_key_ref": st.builds(ConfigMapKeyRef, name=object_names, key=keys)})

models = st.fixed_dictionaries(
    {"id": texts.filter(bool)},
    optional={
        "revision": st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,9}", fullmatch=True),
        "drawer": st.from_regex(r"[a-z]{1,8}/[a-z]{1,8}", fullmatch=True),
        "lora": st.from_regex(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,6}[A-Za-z0-9])?", fullmatch=True),
        "media_options": media_options,
        "storage": storages,
        "shares": shares,
    },
)

origins = st.fixed_dictionaries({"source": sources}) | st.fixed_dictionaries({"model": models})


def one_cell_plans() -> st.SearchStrategy[AppPlan]:
    """Returns plans of which one shared cell runs."""

    def one(plan: AppPlan) -> AppPlan:
        first, *others = plan.cells
        cells = (first.model_copy(update={"count": 1, "is_shared": True}), *(each.with_count(0) for each in others))
        return plan.model_copy(update={"cells": cells})

    return plans().map(one)


@st.composite
def plans(draw: st.DrawFn) -> AppPlan:
    cells = [
        cell(
            gpus,
            {"EL": draw(st.integers(1, 9)), "E": draw(st.integers(1, 9))},
            count=draw(st.integers(1, 3)),
            rate=draw(st.floats(1e-9, 1e9)),
            loads={"E": draw(st.floats(0, 1))},
        )
        for gpus in sorted(draw(st.sets(st.integers(1, 1000), min_size=1, max_size=3)))
    ]
    document = plan_document(*cells, target=draw(st.none() | st.floats(0, 1e9)), planner=draw(names))
    document["options"]["unused"] = {"task": "Other", "gpus": 1, "settings": draw(json_objects)}
    document["options"]["E"]["gpu_type"] = draw(st.none() | st.just("h100"))
    return AppPlan.model_validate(document)


autoscalings = st.builds(
    AutoscalingSettings,
    executors=st.lists(
        st.builds(
            AutoscaledExecutor,
            name=st.sampled_from(["llm", "encoder"]),
            capacity=st.floats(1e-3, 1e6),
            unit=st.sampled_from(["tokens", "requests"]),
            min_replicas=st.integers(1, 3),
            max_replicas=st.integers(3, MAX_REPLICAS),
        ),
        min_size=1,
        max_size=2,
        unique_by=lambda executor: executor.name,
    ),
    dwell_seconds=st.floats(0, 100),
    shrink_seconds=st.floats(720, 1000),
    window_seconds=st.floats(5, 720),
)

plannings = st.builds(
    lambda budget, sizes, profile: PlanningInputs(
        **budget, workload={"all": WorkloadType(components=["llm"], share=1, sizes=sizes)}, profile=profile
    ),
    st.fixed_dictionaries({"gpus": st.integers(1, 64)})
    | st.fixed_dictionaries(
        {"rate": st.floats(1e-9, 1e9)},
        optional={"objective": st.sampled_from(["gpus", "dollars"]), "gpu_types": st.just({"EL": "h100"})},
    )
    | st.just({"gpus": 2, "gpu_counts": {"EL": 2}, "utilization": 0.7, "percentile": 99.0, "survive": True}),
    st.dictionaries(st.sampled_from(["text_tokens", "images"]), st.floats(0, 1e9)),
    st.dictionaries(texts, json_values, min_size=1, max_size=4),
)

adaptations = st.builds(
    AdaptationSettings,
    approval=st.booleans(),
    min_rate=st.floats(0, 10),
    max_rate=st.floats(10, 1e6),
    dwell_seconds=st.floats(0, 100),
    shrink_seconds=st.floats(100, 1000),
    window_seconds=st.floats(0.1, 240),
    hold_seconds=st.floats(0, 1000),
)
adapting = st.builds(AppPolicies, adaptation=adaptations)
autoscaled = st.builds(AppPolicies, autoscaling=autoscalings)
executor_replicas = st.dictionaries(st.sampled_from(["llm", "encoder"]), st.integers(1, MAX_REPLICAS))

sizes = (
    st.fixed_dictionaries(
        {},
        optional={
            "replicas": st.integers(0, MAX_REPLICAS),
            "executor_replicas": executor_replicas,
            "policies": autoscaled,
        },
    )
    | st.fixed_dictionaries({"plan": plans()}, optional={"planning": plannings, "executor_replicas": executor_replicas})
    | st.fixed_dictionaries({"plan": plans(), "policies": adapting}, optional={"planning": plannings})
    | st.fixed_dictionaries(
        {"plan": one_cell_plans(), "policies": autoscaled},
        optional={"planning": plannings, "executor_replicas": executor_replicas},
    )
    | st.fixed_dictionaries({"planning": plannings}, optional={"policies": adapting})
)
"""Replicas, possibly with autoscaling, or a plan, possibly with adaptation or autoscaling."""

latency_targets = st.builds(
    LatencyTargetSettings,
    ttft_seconds=st.none() | st.floats(0.001, 3600),
    tbt_seconds=st.none() | st.floats(0.001, 3600),
    end_to_end_seconds=st.floats(0.001, 3600),
    admission=st.booleans(),
)

app_specs = st.builds(
    lambda origin, size, settings: AppSpec.model_validate(origin | settings | size),
    origins,
    sizes,
    st.fixed_dictionaries(
        {},
        optional={
            "policies": st.builds(
                AppPolicies,
                routing=st.sampled_from(["least-loaded", "static"]),
                binding=st.sampled_from(["early", "late"]),
                log_decisions=st.booleans(),
                targets=st.none() | latency_targets,
            ),
            "rollout": st.builds(
                Rollout,
                type=st.sampled_from(["RollingUpdate", "Recreate"]),
                progress_deadline_seconds=st.integers(1, 604_800),
            ),
            "restart": st.builds(
                Restart, id=texts, executors=st.dictionaries(st.sampled_from(["llm", "encoder"]), texts)
            ),
            "held_until": st.datetimes(
                datetime(2000, 1, 1),
                datetime(2100, 1, 1),
                timezones=st.just(UTC),
            ).map(lambda time: time.replace(microsecond=0)),
            "executors": st.lists(overrides, max_size=3, unique_by=lambda override: override.name),
        },
    ),
)

replicas = st.builds(ReplicaStatus, id=object_names, state=st.sampled_from(ReplicaState), message=texts)
groups = st.builds(
    GroupStatus,
    key=object_names,
    executor=keys,
    gpus=st.integers(0, 8),
    apps=st.integers(1, 9),
    cell=st.none() | st.just("") | object_names,
    option=keys,
    wanted=st.integers(0, 9),
    replicas=st.lists(replicas, max_size=4, unique_by=lambda replica: replica.id).map(
        lambda found: sorted(found, key=lambda replica: replica.id)
    ),
)


cell_counts = st.builds(CellCount, gpus=st.integers(1, 1024), count=st.integers(1, 64))

proposals = st.builds(
    MixtureProposal,
    generation=st.integers(0, 99),
    cells=st.lists(cell_counts, min_size=1, max_size=3, unique_by=lambda cell: cell.gpus),
    target=st.floats(0, 1e6),
    reason=texts,
    gpus_now=st.integers(0, 99),
    gpus=st.integers(0, 99),
    rate_now=st.floats(0, 1e6),
    rate=st.floats(0, 1e6),
)

plan_proposals = st.builds(
    PlanProposal.of,
    generation=st.integers(0, 99),
    running=plans(),
    plan=plans(),
    rate_now=st.floats(0, 1e6),
    reason=texts,
)

type_shares = st.builds(TypeShare, type=texts, planned=st.floats(0, 1), observed=st.floats(0, 1))

mix_shifts = st.builds(
    MixShift,
    distance=st.floats(0, 1),
    shares=st.lists(type_shares, max_size=3, unique_by=lambda share: share.type),
)


executor_loads = st.builds(
    AutoscaledLoad,
    name=st.sampled_from(["llm", "encoder"]),
    unit=st.sampled_from(["tokens", "requests"]),
    load=st.floats(0, 1e9),
    capacity=st.floats(0, 1e9),
)

adaptation_statuses = st.builds(
    AdaptationStatus,
    proposal=st.none() | proposals,
    plan_proposal=st.none() | plan_proposals,
    mix_shift=st.none() | mix_shifts,
    rates=st.lists(
        st.builds(TypeRate, type=texts, planned=st.floats(0, 1e6), observed=st.floats(0, 1e6)),
        max_size=2,
        unique_by=lambda rate: rate.type,
    ),
    executors=st.lists(executor_loads, max_size=2, unique_by=lambda load: load.name),
).filter(lambda status: status != AdaptationStatus())


exits = st.builds(
    ReplicaExit,
    replica=object_names,
    group=object_names,
    time=st.datetimes(datetime(2000, 1, 1), timezones=st.just(UTC)).map(lambda time: time.replace(microsecond=0)),
    message=texts,
)


@st.composite
def app_statuses(draw: st.DrawFn) -> AppStatus:
    phase = draw(st.sampled_from(Phase))
    serving_generation, suspended = draw(st.none() | st.integers(0, 99)), draw(texts)
    serves = phase is not Phase.PARKED and serving_generation is not None and not suspended
    return AppStatus(
        phase=phase,
        generation=draw(st.integers(0, 99)),
        reason=draw(st.none() | st.sampled_from(FailureReason)) if phase is Phase.FAILED else None,
        failed_code=draw(st.sampled_from(["", "0123456789ab"])),
        message=draw(texts),
        logs=draw(st.lists(texts, max_size=20)),
        groups=draw(st.lists(groups, max_size=3, unique_by=lambda group: group.key)),
        exits=draw(st.lists(exits, max_size=3)),
        cells=draw(st.none() | st.integers(1, 64)),
        serving_generation=serving_generation,
        suspended=suspended,
        unreachable=draw(texts) if serves else "",
        adaptation=draw(st.none() | adaptation_statuses),
    )


executor_specs = st.builds(
    ExecutorSpec, executor=keys, config=json_objects, gpus=st.integers(0, 8), has_tensors=st.booleans()
)


PLANNED = resolve_plan(
    AppPlan.model_validate(plan_document(cell(1, {"EL": 1}, count=2), cell(3, {"E": 1, "L": 2}, count=1))), graph()
)
"""The routing of a plan with two sizes of cells."""


@st.composite
def routes(draw: st.DrawFn) -> Route:
    specs = {spec.key: spec for spec in draw(st.lists(executor_specs, max_size=3))}
    return Route(
        app_uid=draw(texts),
        generation=draw(st.integers(0, 99)),
        spec=draw(app_specs),
        shares=draw(st.lists(st.floats(0, 1e300), max_size=4)),
        specs=specs,
        groups={key: draw(object_names) for key in draw(st.lists(st.sampled_from(sorted(specs)))) if specs}
        if specs
        else {},
        plan=draw(st.sampled_from([None, PLANNED])),
    )
