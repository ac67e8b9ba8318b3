"""scheduler: what becomes of one head, step by step: skipped, waiting for victims, put back, tried again."""

from collections.abc import Iterable, Iterator, Mapping

from msgspec.structs import replace

from gpuconsole.model.cluster import Namespace
from gpuconsole.model.events import Refuse
from gpuconsole.model.objects import Object
from gpuconsole.model.queues import ClusterQueue
from gpuconsole.model.workloads import Condition, Workload
from gpuconsole.scheduling.kueue import conditions
from gpuconsole.scheduling.kueue.config import KueueConfig
from gpuconsole.scheduling.kueue.context import Gates
from gpuconsole.scheduling.kueue.entry import CycleEntry, EntryStatus
from gpuconsole.scheduling.kueue.messages import GranularReason
from gpuconsole.scheduling.kueue.pod_resources import WorkloadRequest
from gpuconsole.scheduling.kueue.requeue import refusal_of, requeue_entry
from gpuconsole.scheduling.kueue.scheduler import take_heads
from gpuconsole.scheduling.kueue.session import KueueSession
from gpuconsole.scheduling.kueue.state import FlavorScanProgress
from tests.conformance import world
from tests.conformance.cycle import Cycle, compare_workloads, in_every_run
from tests.conformance.events import expected_events
from tests.conformance.tables import Case, Check, Document, NotModelled, Table, compare

_STATUS = {
    "assumed": EntryStatus.ASSUMED,
    "nominated": EntryStatus.ASSUMED,
    "skipped": EntryStatus.SKIPPED,
    "preemptionGated": EntryStatus.GATED,
    "": EntryStatus.NOT_NOMINATED,
}
"""Kueue's words; one that could not be written down after its nomination is taken for assumed here."""


def _entry() -> CycleEntry:
    state = world.state(KueueConfig(), [ClusterQueue(name="q")], 0)
    entry = CycleEntry(WorkloadRequest(Workload(name="any"), 0, "q", state.config), state.setup.queues["q"])
    entry.resume = ({"cpu": 0},)
    return entry


def check_outcome(table: Table, case: Case) -> Iterator[str]:
    """TestEntryMarkPreemptionOutcome: what a head says that has victims."""
    entry = _entry()
    entry.message = table.shared["e"]["inadmissibleMsg"]
    if case.want.get("errors") and not case.input["preempted"]:
        raise NotModelled("evictions that cannot be written down")
    entry.requeue_until_victims_terminated(case.input["preempted"])
    yield from compare("wantMessage", entry.message, case.want["wantMessage"])
    yield from compare("wantRequeueReason", entry.requeue.value, case.want["wantRequeueReason"])
    yield from compare("wantLastAssignmentNil", entry.resume is None, case.want["wantLastAssignmentNil"])


def check_skipped(table: Table, case: Case) -> Iterator[str]:
    """TestEntryMarkSkipped: whether a skipped head goes on where its search for flavors stopped."""
    entry = _entry()
    entry.skip("no room", keep_progress=Gates(KueueConfig(gates=case.gates)).preserve_scan_progress)
    yield from compare("status", entry.status, EntryStatus.SKIPPED)
    yield from compare("message", entry.message, "no room")
    yield from compare("wantLastAssignmentNil", entry.resume is None, case.want["wantLastAssignmentNil"])
    if not case.want["wantLastAssignmentNil"]:
        yield from compare("where it goes on", entry.resume, ({"cpu": 0},))


def check_outdated(table: Table, case: Case) -> Iterator[str]:
    """TestLastAssignmentOutdated: whether what was recorded of a search still counts."""
    given = case.input["args"]
    last = given.get("last") or {}
    progress = FlavorScanProgress(
        resume=(),
        generation=last.get("ClusterQueueGeneration", 0),
        cycle=last.get("SchedulingCycle", 0),
        scheduling_hash=last.get("SchedulingHash", "").encode(),
    )
    got = progress.is_outdated(
        given.get("currentCQGeneration", 0),
        given.get("currentSchedulingCycle", 0),
        given.get("currentSchedulingHash", "").encode(),
        preserve=Gates(KueueConfig(gates=case.gates)).preserve_scan_progress,
    )
    yield from compare("want", got, case.want["want"])


def check_requeue(table: Table, case: Case, gates: Mapping[str, bool]) -> Iterator[str]:
    """TestRequeueAndUpdate: where a head goes, and what its status says; a second time nothing is written."""
    config, fixtures = KueueConfig(gates=gates), table.fixtures
    workload = world.decode_workload(fixtures["w1"])
    things = [Namespace(name="ns1"), *world.decode_all([fixtures["cq"], fixtures["q1"]]), workload]
    session = world.session(config, things, 0)
    (entry,), _ = take_heads(session._state, session._state.context())
    given = case.input.get("e") or {}
    entry.status = _STATUS[given.get("status", "")]
    entry.refuse(given.get("inadmissibleMsg", ""), GranularReason(given.get("quotaReservedReason", "")))
    requeue_entry(session._state, entry)
    told = _told(session, entry, workload)
    for field, parked in (("wantWorkloads", False), ("wantInadmissible", True)):
        waiting = sorted(p.workload.key for p in session.pending_workloads("cq") if p.inadmissible == parked)
        yield from compare(field, waiting, sorted((case.want.get(field) or {}).get("cq") or ()))
    want = case.want.get("wantStatus") or {}
    wanted = world.conditions(want.get("conditions") or [])
    wanted = wanted if config.has_granular_reasons else world.unobserved(wanted)
    yield from compare("conditions", _timeless(told.conditions), _timeless(wanted))
    requested = {} if told is workload else session.requests_of(workload.key)
    listed = {pods["name"]: world.amounts(pods.get("resources") or {}) for pods in want.get("resourceRequests") or ()}
    yield from compare("resourceRequests", requested, listed)
    yield from compare("wantStatusUpdates", int(told is not workload), case.want["wantStatusUpdates"])
    yield from compare("nothing more is written", _told(session, entry, told) is told, True)


def _told(session: KueueSession, entry: CycleEntry, workload: Workload) -> Workload:
    """The workload with what its refusal says; one that was assumed is told nothing."""
    if entry.status is EntryStatus.ASSUMED:
        return workload
    decision = refusal_of(session._state, entry)
    assert isinstance(decision, Refuse)
    return conditions.apply_refusal(workload, decision, 0, granular=session.config.has_granular_reasons)


def _timeless(listed: Iterable[Condition]) -> list[Condition]:
    return sorted((replace(condition, since=0) for condition in listed), key=lambda condition: condition.type)


def check_concurrent_change(table: Table, case: Case, gates: Mapping[str, bool]) -> Iterator[str]:
    """TestSchedulerWhenWorkloadModifiedConcurrently: somebody changes a workload while it is decided about."""
    fixtures, given = table.fixtures, case.input["workload"]
    documents = [fixtures["ns"], fixtures["rf"], fixtures["cq"], fixtures["lq"], given]
    run = Cycle(KueueConfig(gates=gates), world.decode_all(documents), world.clock(fixtures["now"]))
    changed = {key: replace(workload, labels={"changed": "meanwhile"}) for key, workload in run.workloads.items()}
    run.workloads = changed
    run.run()
    run.workloads = {key: replace(workload, labels={}) for key, workload in run.workloads.items()}
    yield from compare_workloads(run, case, [given])
    want = expected_events(case.want.get("wantEvents") or (), granular=run.config.has_granular_reasons)
    yield from compare("events", [event.silent() for event in run.events], [event.silent() for event in want])


_CYCLES = 4
"""How many cycles TestScheduleForPreserveFlavorScanProgress runs."""


def check_progress(table: Table, case: Case) -> Iterator[str]:
    """TestScheduleForPreserveFlavorScanProgress: several cycles, between which the queue's quota changes or not."""
    fixtures = table.fixtures
    queue = fixtures["clusterQueue"]
    documents = [
        *(fixtures["singleLevelTopology"], *fixtures["nodes"], *fixtures["resourceFlavors"], queue),
        *(*fixtures["queues"], fixtures["blocker"], fixtures["pending"]),
    ]
    config = KueueConfig(fair_sharing=True, gates=case.gates)
    run = Cycle(config, [Namespace(name="default"), *world.decode_all(documents)], world.clock(fixtures["now"]))
    for number in range(_CYCLES):
        run.run()
        if not case.input.get("noChurn"):
            run.session.apply(_with_quota(queue, "4" if number % 2 else "5"), run.now)
        run.session.requeue_inadmissible(run.now)
    for name, want in (("pending", case.want["wantPendingFlavor"]), ("blocker", "tas-flavor-1")):
        admission = run.workloads[f"default/{name}"].admission
        given = next(iter(admission.pod_sets[0].flavors.values())) if admission is not None else ""
        yield from compare(f"flavor of {name}", given, want)


def _with_quota(queue: Document, quota: str) -> Object:
    """The ClusterQueue with another quota for its second flavor."""
    groups = [dict(group) for group in queue["spec"]["resourceGroups"]]
    first, second, *rest = groups[0]["flavors"]
    resources = [{**resource, "nominalQuota": quota} for resource in second["resources"]]
    groups[0]["flavors"] = [first, {**second, "resources": resources}, *rest]
    return world.decode({**queue, "spec": {**queue["spec"], "resourceGroups": groups}})


CHECKS: dict[str, Check] = {
    "scheduler/TestEntryMarkPreemptionOutcome": lambda table, case: list(check_outcome(table, case)),
    "scheduler/TestEntryMarkSkipped": lambda table, case: list(check_skipped(table, case)),
    "scheduler/TestLastAssignmentOutdated": lambda table, case: list(check_outdated(table, case)),
    "scheduler/TestRequeueAndUpdate": lambda table, case: in_every_run(check_requeue, table, case),
    "scheduler/TestSchedulerWhenWorkloadModifiedConcurrently": lambda table, case: in_every_run(
        check_concurrent_change, table, case
    ),
    "scheduler/TestScheduleForPreserveFlavorScanProgress": lambda table, case: list(check_progress(table, case)),
}
