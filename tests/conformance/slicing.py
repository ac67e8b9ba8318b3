"""workloadslicing: which slices of an elastic job stay, which are finished, and what a new one takes over from.

The tables leave out what the API client of a case holds (`$skipped`). `_CLIENTS` says what Kueue's test puts there for
TestEnsureWorkloadSlices: the slices in short, and whether writes are taken. Everything that is expected is the table's.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from gpuconsole.model.pod_template import PodSet
from gpuconsole.model.workloads import Workload
from gpuconsole.scheduling.kueue import slices
from gpuconsole.scheduling.kueue.config import KueueConfig
from gpuconsole.scheduling.kueue.pod_resources import Holding
from tests.conformance import world
from tests.conformance.tables import Case, Check, Document, NotModelled, Table, compare

_JOB = "test"


class _Slice(Struct, frozen=True):
    """One slice in a client: pods of each pod set, and what its status says."""

    number: int
    counts: Mapping[str, int]
    reserved: bool = False
    evicted: bool = False
    replaces: int = 0


class _Client(Struct, frozen=True):
    """What a client holds, and what it refuses."""

    slices: tuple[_Slice, ...] = ()
    edits: bool = True
    """Edits of a spec are taken."""
    endings: bool = False
    """A finished slice is written down; most of these clients cannot find it again."""


def _one(count: int, **more: bool) -> tuple[_Slice, ...]:
    return (_Slice(1, {"main": count}, **more),)


_PARTS = {"scale-up": 3, "scale-down": 3, "stay-the-same": 3}
_WAITING = (_Slice(1, {"main": 1}), _Slice(2, {"main": 3}))
_REPLACING = (_Slice(1, {"main": 1}, reserved=True), _Slice(2, {"main": 3}, replaces=1))

_CLIENTS = {
    "NoWorkloadSlices": _Client(),
    "OneWorkloadSlice_IncompatibleWithJob": _Client(_one(1)),
    "OneWorkloadSlice_CurrentWorkload": _Client(_one(1)),
    "OneWorkloadSlice_ReservedQuota_ScaleUp": _Client(_one(1, reserved=True)),
    "OneWorkloadSlice_ReservedQuota_ScaleUp_MultiplePodSets": _Client((_Slice(1, _PARTS, reserved=True),)),
    "OneWorkloadSlice_ReservedQuota_ScaleDown": _Client(_one(3, reserved=True)),
    "OneWorkloadSlice_ReservedQuota_ScaleDown_MultiplePodSets": _Client(
        (_Slice(1, {"scale-down": 3, "stay-the-same": 3}, reserved=True),)
    ),
    "OneWorkloadSlice_UnreservedQuota_ScaleUp": _Client(_one(1)),
    "OneWorkloadSlice_UnreservedQuota_ScaleDown": _Client(_one(3)),
    "OneWorkloadSlice_UpdateFailure": _Client(_one(3), edits=False),
    "TwoWorkloads_BothUnreserved_NewIsCurrent": _Client(_WAITING, endings=True),
    "TwoWorkloads_BothUnreserved_NewIsCurrent_FailureToPatchOldSliceStatus": _Client(_WAITING),
    "TwoWorkloads_NewIsIncompatible": _Client(_REPLACING),
    "TwoWorkloads_BothWithReservedQuota": _Client(
        (_Slice(1, {"main": 1}, reserved=True), _Slice(2, {"main": 3}, reserved=True))
    ),
    "TwoWorkloads_OldWithReservedQuotaAndEvicted_NewWithoutQuotaReservation": _Client(
        (_Slice(1, {"main": 1}, reserved=True, evicted=True), _Slice(2, {"main": 3}))
    ),
    "TwoWorkloadSlices_NewIsUnreservedAndCurrent": _Client(_REPLACING),
    "TwoWorkloadSlices_NewIsUnreservedAndOutOfSync_ScaleUp": _Client(_REPLACING),
    "TwoWorkloadSlices_NewIsUnreservedAndOutOfSync_ScaleDown": _Client(_REPLACING),
    "TwoWorkloadSlices_NewIsUnreservedAndOutOfSync_UpdateFailure": _Client(
        (_Slice(1, {"main": 1}, reserved=True), _Slice(2, {"main": 3})), edits=False
    ),
    "TwoWorkloads_OldWithReservedQuota_NewWithReplacementAnnotationAndQuota": _Client(
        (_Slice(1, {"main": 1}, reserved=True), _Slice(2, {"main": 3}, reserved=True, replaces=1)), endings=True
    ),
    "MoreThanTwoWorkloadSlices": _Client(tuple(_Slice(number, {"main": number}) for number in (1, 2, 3))),
}


def _document(part: _Slice, now: str) -> Document:
    container = {"name": "c", "resources": {"requests": {"cpu": "1"}}}
    template = {"spec": {"containers": [container], "restartPolicy": "Never"}}
    metadata: dict[str, Any] = {
        "name": f"{_JOB}-{part.number}",
        "creationTimestamp": f"2026-01-0{part.number}T00:00:00Z",
    }
    if part.replaces:
        metadata["annotations"] = {slices.REPLACEMENT_FOR: f"/{_JOB}-{part.replaces}"}
    status: dict[str, Any] = {"conditions": []}
    if part.reserved:
        reserved = {"type": "QuotaReserved", "reason": "AdmittedByTest", "message": "Admitted by ClusterQueue default"}
        status["conditions"].append({**reserved, "status": "True", "lastTransitionTime": now})
        given = [
            {"name": name, "flavors": {"cpu": "default"}, "resourceUsage": {"cpu": "1"}, "count": count}
            for name, count in part.counts.items()
        ]
        status["admission"] = {"clusterQueue": "default", "podSetAssignments": given}
    if part.evicted:
        status["conditions"].append({"type": "Evicted", "status": "True", "lastTransitionTime": now})
    pod_sets = [{"name": name, "template": template, "count": count} for name, count in part.counts.items()]
    return {"metadata": metadata, "spec": {"podSets": pod_sets}, "status": status}


def _pod_sets(listed: Sequence[Document] | None) -> tuple[PodSet, ...]:
    return world.decode_workload({"metadata": {"name": "any"}, "spec": {"podSets": list(listed or ())}}).pod_sets


def _known(workload: Workload) -> Workload:
    """A slice without its owner; that of another namespace is named as in the tables, by an empty one."""
    key = slices.replacement_for(workload)
    notes = {slices.REPLACEMENT_FOR: key.replace("default/", "/")} if key is not None else {}
    return replace(world.comparable(workload), owner="", job_uid="", annotations={**workload.annotations, **notes})


def check_ensure(table: Table, case: Case) -> Iterator[str]:
    """TestEnsureWorkloadSlices: the slice that stays, as it is then; whether it suits the job; what cannot be done."""
    if case.name not in _CLIENTS:
        raise NotModelled("a client that cannot list")
    client, want = _CLIENTS[case.name], case.want.get("want") or {}
    existing = [world.decode_workload(_document(part, table.fixtures["now"])) for part in client.slices]
    existing = [_in_default(workload) for workload in existing]
    plan = slices.plan_slices(existing, _pod_sets(case.input["args"].get("jobPodSets")))
    refused = (plan.is_edited and not client.edits) or (bool(plan.endings) and not client.endings)
    yield from compare("error", refused, want.get("error", False))
    yield from compare("compatible", plan.is_compatible, want.get("compatible", False))
    if refused:
        return
    wanted = want.get("workload")
    got = _known(plan.current) if plan.current is not None else None
    yield from compare("workload", got, _known(world.decode_workload(wanted)) if wanted else None)
    yield from compare("edited", plan.is_edited, wanted is not None and wanted["metadata"]["resourceVersion"] == "2")


def _in_default(workload: Workload) -> Workload:
    """Slices name each other by keys: `/name` is one of the same namespace."""
    key = slices.replacement_for(workload)
    if key is None:
        return workload
    return replace(workload, annotations={slices.REPLACEMENT_FOR: f"{workload.namespace}{key}"})


def check_normalize(table: Table, case: Case) -> Iterator[str]:
    """TestNormalizeActiveSlices: which slice stays, and that all others but one with quota are finished."""
    given = [world.decode_workload(document) for document in case.input["workloads"]]
    want = case.want.get("want") or {}
    selected, endings = slices.normalise_slices(given)
    yield from compare("survivor", selected.name if selected is not None else "", want.get("survivor", ""))
    kept = {want.get("survivor"), want.get("keptAdmitted")}
    finished = {ending.workload.name for ending in endings}
    yield from compare("finished", finished, {workload.name for workload in given} - kept)


def check_not_finished(table: Table, case: Case) -> Iterator[str]:
    """TestFindNotFinishedWorkloads: a job's slices in order, without finished ones and without those of other jobs."""
    if case.want.get("wantErr"):
        raise NotModelled("a client that cannot list")
    wanted = [world.decode_workload(document) for document in case.want["want"]]
    others = [
        change
        for workload in wanted
        for change in (_finished(workload), replace(workload, name=f"other-{workload.name}", owner="Job/default/other"))
    ]
    owner = wanted[0].owner if wanted else "Job/default/test"
    listed = sorted([*wanted, *others], key=lambda workload: workload.name)
    yield from compare("want", slices.unfinished_slices(listed, owner), wanted)


def _finished(workload: Workload) -> Workload:
    done = {"type": "Finished", "status": "True", "reason": "Succeeded", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    return replace(workload, name=f"finished-{workload.name}", conditions=world.conditions([done]))


def check_latest(table: Table, case: Case) -> Iterator[str]:
    """TestFindLatestActiveWorkload: the newest slice with quota."""
    given = [world.decode_workload(document) for document in case.input.get("workloads") or ()]
    listed = slices.unfinished_slices(given, given[0].owner) if given else []
    latest = slices.latest_active_slice(listed)
    yield from compare("want", latest.name if latest is not None else "", case.want["want"])


def check_enabled(table: Table, case: Case) -> Iterator[str]:
    """TestEnabled: may the job grow and shrink?"""
    job = (case.input.get("args") or {}).get("object") or {}
    annotations = (job.get("metadata") or {}).get("annotations") or {}
    yield from compare("want", slices.is_elastic(annotations, KueueConfig(gates=case.gates)), case.want["want"])


def check_key(table: Table, case: Case) -> Iterator[str]:
    """TestPreemptibleSliceKey: the slice that another one is to replace."""
    document = case.input["args"]["wl"]
    metadata = {"name": "any", **(document.get("metadata") or {})}
    workload = world.decode_workload({**document, "metadata": metadata})
    yield from compare("want", slices.replacement_for(workload), case.want.get("want"))


def check_scaled_down(table: Table, case: Case) -> Iterator[str]:
    """TestScaledDown: fewer pods, and nowhere more."""
    given = case.input["args"]
    got = slices.is_scaled_down(given.get("oldCounts") or {}, given.get("newCounts") or {})
    yield from compare("want", got, case.want["want"])


def check_replaced(table: Table, case: Case) -> Iterator[str]:
    """TestReplacedWorkloadSlice: the slice with quota in the same ClusterQueue that a new one names."""
    given = case.input.get("args") or {}
    info, manager = given.get("wl"), (given.get("snap") or {}).get("Manager") or {}
    got = None
    if info is not None:
        queue = (manager.get("clusterQueues") or {}).get(info.get("ClusterQueue", "")) or {}
        known = {key: world.decode_workload(other["Obj"]) for key, other in (queue.get("Workloads") or {}).items()}
        workload = world.decode_workload(info["Obj"])
        key = slices.replacement_for(workload)
        if key in known:
            workload = replace(workload, annotations={slices.REPLACEMENT_FOR: known[key].key})
        held = [_holding(other) for other in known.values()]
        got = slices.replaced_slice(workload, held, KueueConfig(gates=case.gates))
    want = (case.want.get("want") or {}).get("wl")
    wanted = world.decode_workload(want["Obj"]) if want is not None else None
    yield from compare("want", got.workload if got is not None else None, wanted)


def _holding(workload: Workload) -> Holding:
    return Holding(
        workload=workload,
        id=0,
        cluster_queue="any",
        priority=0,
        timestamp=0,
        evicted=False,
        usage=(),
        columns=frozenset(),
        rank=(True, 0, 0, ""),
    )


CHECKS: dict[str, Check] = {
    f"workloadslicing/{name}": lambda table, case, check=check: list(check(table, case))  # type: ignore[misc]
    for name, check in {
        "TestEnabled": check_enabled,
        "TestEnsureWorkloadSlices": check_ensure,
        "TestFindLatestActiveWorkload": check_latest,
        "TestFindNotFinishedWorkloads": check_not_finished,
        "TestNormalizeActiveSlices": check_normalize,
        "TestPreemptibleSliceKey": check_key,
        "TestReplacedWorkloadSlice": check_replaced,
        "TestScaledDown": check_scaled_down,
    }.items()
}
