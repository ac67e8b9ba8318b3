"""cache_queue_afs, util_admissionfairsharing and their users: what LocalQueues used lately, and who is next by that."""

from collections.abc import Iterator, Mapping
from typing import Any

from msgspec.structs import replace

from gpuconsole.model.clock import HOUR, MINUTE, Time, parse_span
from gpuconsole.model.cluster import Namespace
from gpuconsole.model.queues import ClusterQueue, LocalQueue
from gpuconsole.model.resources import BILLIONTH, parse_quantity
from gpuconsole.scheduling.kueue import afs_charges
from gpuconsole.scheduling.kueue import workload_index as afs_usage
from gpuconsole.scheduling.kueue.config import AdmissionFairSharing, KueueConfig
from gpuconsole.scheduling.kueue.state import KueueState
from gpuconsole.scheduling.kueue.workload_index import LocalQueueUsage
from tests.conformance import world
from tests.conformance.cycle import Cycle, compare_workloads
from tests.conformance.tables import Case, Check, Document, NotModelled, Table, compare

_USAGE_BASED = "UsageBasedAdmissionFairSharing"


def _settings(document: Document | None) -> AdmissionFairSharing | None:
    """The Configuration's admissionFairSharing."""
    if document is None:
        return None
    return AdmissionFairSharing(
        usage_half_life=parse_span(document["usageHalfLifeTime"]),
        usage_sampling_interval=parse_span(document["usageSamplingInterval"]),
        resource_weights=document.get("resourceWeights") or {},
    )


def _fine(quantities: Mapping[str, Any] | None) -> dict[str, int]:
    """Quantities in billionths."""
    return {name: int(parse_quantity(value) * BILLIONTH) for name, value in (quantities or {}).items()}


def check_cycles(table: Table, case: Case) -> Iterator[str]:
    """TestScheduleForAFS: as many cycles as there are workloads, on LocalQueues that used something before."""
    given, fixtures = case.input, table.fixtures
    now = world.clock(fixtures["now"])
    documents = [*fixtures["resourceFlavors"], *fixtures["clusterQueues"], *given["workloads"]]
    used = given.get("initialUsage") or {}
    for variant in case.variants or ({},):
        gates = {**case.gates, **variant}
        config = KueueConfig(
            admission_fair_sharing=_settings(fixtures["afsConfig"]),
            fair_sharing=bool((given.get("featureGates") or {}).get("AdmissionFairSharing")),
            gates=gates,
        )
        doors = [
            # Of a LocalQueue that the API server does not have any more, only the weight is missed.
            replace(door, consumed=_fine(used.get(door.name)), **({"fair_weight": 1.0} if gone else {}))
            for door in world.decode_all(fixtures["queues"])
            if isinstance(door, LocalQueue)
            for gone in (door.name == given.get("deleteQueue"),)
        ]
        cycle = Cycle(config, [Namespace(name="default"), *world.decode_all(documents), *doors], now)
        for _ in given["workloads"]:
            cycle.run()
        yield from compare_workloads(cycle, case, given["workloads"])


def check_head(table: Table, case: Case) -> Iterator[str]:
    """TestFsAdmission: which of the workloads is popped first."""
    given = case.input
    queue = world.decode(given["cq"])
    assert isinstance(queue, ClusterQueue)
    used = given.get("initConsumedResources") or {}
    workloads = [world.decode_workload(document) for document in given["wls"]]
    doors = {door.key: door for door in world.decode_all(given["lqs"]) if isinstance(door, LocalQueue)}
    for workload in workloads:
        usual = LocalQueue(namespace=workload.namespace, name=workload.queue)
        doors.setdefault(workload.local_queue, usual)
    things = [replace(door, cluster_queue=queue.name, consumed=_fine(used.get(key))) for key, door in doors.items()]
    config = KueueConfig(admission_fair_sharing=_settings(given.get("afsConfig")), gates=case.gates)
    state = world.state(config, [queue, *things, *workloads], 0)
    first = state.next_head(state.setup.queues[queue.name])
    want = world.decode_workload(case.want["wantWl"])
    yield from compare("wantWl", None if first is None else first.workload, want)


def check_charges(table: Table, case: Case) -> Iterator[str]:
    """TestShouldApplyEntryPenalty: does the reservation cost a penalty?"""
    given = case.input
    config = KueueConfig(admission_fair_sharing=_settings(given.get("afsConfig")), gates=case.gates)
    queue = ClusterQueue(name="cq", admission_mode=given.get("admissionMode") or "")
    got = afs_charges.adds_penalty(config, queue, world.decode_workload(given["wl"]))
    yield from compare("want", got, case.want["want"])


def check_penalties(table: Table, case: Case) -> Iterator[str]:
    """TestPenaltyBookkeepingIsIdempotentAndExact: penalties are pushed and dropped."""
    ledger = LocalQueueUsage(updated=world.clock(table.fixtures["now"]))
    for operation in case.input.get("ops") or ():
        if "push" in operation:
            ledger = afs_usage.with_penalty(ledger, operation["wl"], _fine(operation["push"]))
        else:
            ledger = afs_usage.without_penalty(ledger, operation["wl"])
    yield from compare("wantHas", any(ledger.total_penalty.values()), case.want["wantHas"])
    for name, milli in (case.want.get("wantMilli") or {}).items():
        yield from compare(f"{name} in milli", ledger.total_penalty.get(name, 0), milli * (BILLIONTH // 1000))


def check_consumed(table: Table, case: Case) -> Iterator[str]:
    """TestUpdateAfsConsumedUsage: a workload of 4 CPUs with a penalty of 2 is admitted; nobody else is."""
    now, entry = world.clock(table.fixtures["now"]), case.input.get("initialEntry")
    settings = _settings(table.fixtures["afsConfig"])
    assert settings is not None
    ledger = _ledger(entry) if entry is not None else LocalQueueUsage(updated=now)
    ledger = afs_usage.with_penalty(ledger, "ns/wl", _fine({"cpu": "2"}))
    ledger = afs_usage.with_converted_penalty(ledger, "ns/wl", {}, now, settings.usage_half_life)
    want = case.want.get("wantLastUpdate")
    yield from compare("wantCPUMilli", ledger.consumed["cpu"], case.want["wantCPUMilli"] * (BILLIONTH // 1000))
    yield from compare("wantStatusAccounted", ledger.has_reported_usage, bool(case.want.get("wantStatusAccounted")))
    yield from compare("wantLastUpdate", ledger.updated, now if want is None else world.clock(want))
    yield from compare("penalties", dict(ledger.penalties), {})


def _ledger(entry: Document) -> LocalQueueUsage:
    return LocalQueueUsage(
        updated=world.clock(entry["LastUpdate"]),
        consumed=_fine(entry.get("Resources")),
        has_reported_usage=bool(entry.get("StatusAccounted")),
    )


def check_settles(table: Table, case: Case) -> Iterator[str]:
    """TestUpdateSettlesAfsEntryPenalty: is a penalty folded into what was consumed when the workload changes?"""
    shared = table.shared
    queue = world.decode(case.variables.get("cq") or shared["cq"])
    config = KueueConfig(admission_fair_sharing=_settings(shared["afsConfig"]), gates=case.gates)
    now = world.clock(table.fixtures["now"])
    state = _updated(config, [queue, world.decode(shared["lq"])], case, shared["seeded"], now)
    ledger = state.local_queue_usage["ns/lq"]
    yield from compare("wantFolded", any(ledger.consumed.values()), case.want["wantFolded"])
    yield from compare("wantPending", bool(ledger.penalties), case.want["wantPending"])


def check_drops(table: Table, case: Case) -> Iterator[str]:
    """TestUpdateDropsUnsettleableAfsEntryPenalty: whose penalties are pending after a workload changed?"""
    settings = AdmissionFairSharing(usage_half_life=5 * MINUTE, usage_sampling_interval=5 * MINUTE)
    config = KueueConfig(admission_fair_sharing=settings, gates=case.gates)
    things = [ClusterQueue(name="cq"), LocalQueue(namespace="ns", name="lq", cluster_queue="cq")]
    state = _updated(config, things, case, {"cpu": "2"}, world.clock(table.fixtures["now"]))
    for door, pending in (case.want.get("wantPendingOn") or {}).items():
        ledger = state.local_queue_usage.get(door)
        yield from compare(f"pending on {door}", ledger is not None and any(ledger.total_penalty.values()), pending)
    yield from compare("ledgers", list(state.local_queue_usage), ["ns/lq"])


def _updated(config: KueueConfig, things: list[Any], case: Case, penalty: Document, now: Time) -> KueueState:
    """What a session knows after a workload that has a pending penalty changed from `oldWl` to `newWl`."""
    old, new = (world.decode_workload(case.input[name]) for name in ("oldWl", "newWl"))
    session = world.session(config, [*things, old], now)
    afs_charges.add_penalty(session._apply_noted_changes, old, _fine(penalty))
    session.apply(new, now)
    return session._apply_noted_changes


def check_decay(table: Table, case: Case) -> Iterator[str]:
    """TestCalculateDecayedConsumed…: five minutes of a large usage, with a half-life of a week; exact."""
    usage = _fine({"memory": case.input["value"]})
    got = afs_usage.decayed_usage({}, usage, 5 * MINUTE, 168 * HOUR)
    yield from compare("consumed", got, _fine(case.variables["consumed"]))
    if got["memory"] <= 0:
        yield "nothing was consumed"


def check_usage(table: Table, case: Case) -> Iterator[str]:
    """TestCalculateUsage…: one number of consumption, penalties and weights."""
    given = case.input
    consumed, penalty = _fine(given.get("consumed")), _fine(given.get("penalty"))
    got = afs_usage.comparable_usage(consumed, penalty, given.get("lqWeight", 0), given.get("resWeights") or {})
    want = case.want.get("wantUsage", float(table.shared.get("got", "nan")) if "wantUsage" not in case.want else 0)
    yield from compare("usage", got, want)


def check_weight(table: Table, case: Case) -> Iterator[str]:
    """TestResolveLQWeight: a LocalQueue's weight, also of one that is not there."""
    if case.input.get("getErr") is not None:
        raise NotModelled("reading a LocalQueue never fails here")
    document = case.input.get("localQueue")
    state = world.state(KueueConfig(gates=case.gates), [world.decode(document)] if document else [], 0)
    yield from compare("wantWeight", state.weight_of("ns/lq"), case.want["wantWeight"])


def check_queue_usage(table: Table, case: Case) -> Iterator[str]:
    """TestCalcLocalQueueFSUsage: 10 CPUs were consumed in a LocalQueue that is gone."""
    error = (case.input.get("err") or case.want.get("err") or {}).get("$type")
    if error != "*errors.StatusError":
        raise NotModelled("reading a LocalQueue never fails here")
    settings = AdmissionFairSharing(usage_half_life=MINUTE, resource_weights=table.shared["resWeights"])
    state = world.state(KueueConfig(admission_fair_sharing=settings, gates=case.gates), [], 0)
    workload = world.decode_workload(table.shared["wl"])
    state.local_queue_usage[workload.local_queue] = LocalQueueUsage(updated=0, consumed=_fine({"cpu": "10"}))
    yield from compare("wantUsage", state.recent_usage_of(workload.local_queue), case.want["wantUsage"])


CHECKS: dict[str, Check] = {
    "scheduler/TestScheduleForAFS": lambda table, case: list(check_cycles(table, case)),
    "scheduler/TestShouldApplyEntryPenalty": lambda table, case: list(check_charges(table, case)),
    "cache_queue/TestFsAdmission": lambda table, case: list(check_head(table, case)),
    "cache_queue_afs/TestPenaltyBookkeepingIsIdempotentAndExact": lambda table, case: list(
        check_penalties(table, case)
    ),
    "controller_core/TestUpdateAfsConsumedUsage": lambda table, case: list(check_consumed(table, case)),
    "controller_core/TestUpdateSettlesAfsEntryPenalty": lambda table, case: list(check_settles(table, case)),
    "controller_core/TestUpdateDropsUnsettleableAfsEntryPenalty": lambda table, case: list(check_drops(table, case)),
    "util_admissionfairsharing/TestCalculateDecayedConsumedKeepsLargeQuantitiesPositive": lambda table, case: list(
        check_decay(table, case)
    ),
    "util_admissionfairsharing/TestCalculateUsageWithDRA": lambda table, case: list(check_usage(table, case)),
    "util_admissionfairsharing/TestCalculateUsageWithNonPositiveWeight": lambda table, case: list(
        check_usage(table, case)
    ),
    "util_admissionfairsharing/TestResolveLQWeight": lambda table, case: list(check_weight(table, case)),
    "workload/TestCalcLocalQueueFSUsage": lambda table, case: list(check_queue_usage(table, case)),
}
