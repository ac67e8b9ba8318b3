"""cache_queue, visibility_storage: who waits in which queue, who is parked and comes back, and what is told of it."""

from collections.abc import Iterable, Iterator, Mapping

from msgspec.structs import replace

from gpuconsole.insight.index.queues import pending, position, queue_index
from gpuconsole.model.clock import Time, parse_span
from gpuconsole.model.cluster import Namespace
from gpuconsole.model.events import Applied
from gpuconsole.model.objects import Object
from gpuconsole.model.pod_template import PodSet
from gpuconsole.model.queues import ClusterQueue, LocalQueue, StopPolicy
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.model.state import ClusterState
from gpuconsole.model.workloads import Workload
from gpuconsole.scheduling.kueue import conditions
from gpuconsole.scheduling.kueue.admissibility import InadmissibleReason, queue_inadmissible_reason
from gpuconsole.scheduling.kueue.cluster_queue import ClusterQueueHeap, RequeueReason
from gpuconsole.scheduling.kueue.config import KueueConfig
from gpuconsole.scheduling.kueue.pod_resources import WorkloadRequest
from gpuconsole.scheduling.kueue.requeue import resume_position
from gpuconsole.scheduling.kueue.session import KueueSession
from gpuconsole.scheduling.kueue.state import FlavorScanProgress
from gpuconsole.scheduling.kueue.workloads import schedule_second_pass, take_due_second_passes
from tests.conformance import world
from tests.conformance.tables import Case, Check, Document, Table, compare

_NOW: Time = 10**15


def popped_from(queue: ClusterQueueHeap) -> WorkloadRequest | None:
    """The head, taken out."""
    head = queue.head()
    if head is not None:
        queue.take_head(head)
    return head


def _queue(*, strict: bool = False, hashing: bool = True) -> ClusterQueueHeap:
    return ClusterQueueHeap(strict=strict, hashing=hashing)


def _request(number: int, shape: str | None = None) -> WorkloadRequest:
    """A small workload, of a given scheduling hash."""
    workload = Workload(name=f"w{number}", uid=f"{number}", pod_sets=(PodSet(),))
    request = WorkloadRequest(workload, number, "q", KueueConfig())
    if shape is not None:
        request._shape = shape.encode()
    return request


def _counts(queue: ClusterQueueHeap) -> tuple[int, int]:
    """Active and parked."""
    parked = [parked for _, parked in queue.sorted_pending()]
    return len(parked) - sum(parked), sum(parked)


def _refuse(queue: ClusterQueueHeap, shape: str) -> None:
    """Somebody of this shape was refused, and left."""
    queue.requeue(_request(-1, shape), RequeueReason.NO_FIT, ready=True, more_flavors=False)
    queue.remove(-1)


def _session(things: Iterable[Object], gates: Mapping[str, bool], now: Time = _NOW) -> KueueSession:
    return world.session(KueueConfig(gates=gates), [Namespace(name="default"), *things], now)


def _key(key: str) -> str:
    """A key as the tables write it: their namespace is empty where ours is `default`."""
    return key.removeprefix("default") if key.startswith("default/") else key


# Parking, by the queue alone.


def check_best_effort(table: Table, case: Case) -> Iterator[str]:
    """TestBestEffortFIFORequeueIfNotPresent: a head comes back for some reason, with flavors left to try or not."""
    given, queue = case.input, _queue(hashing=False)
    last = (given.get("lastAssignment") or {}).get("LastTriedFlavorIdx") or ()
    more = any(index != -1 for indices in last for index in indices.values())
    queue.requeue(_request(0), RequeueReason(given.get("reason", "")), ready=True, more_flavors=more)
    yield from compare("wantInadmissible", queue.is_inadmissible(0), case.want["wantInadmissible"])
    yield from compare("wantSticky", queue.is_sticky(0), case.want["wantSticky"])


def check_strict(table: Table, case: Case) -> Iterator[str]:
    """TestStrictFIFORequeueIfNotPresent: the reason is the case's name; nothing is there twice."""
    queue = _queue(strict=True)
    for _ in range(2):
        queue.requeue(_request(0), RequeueReason(case.name), ready=True, more_flavors=False)
    yield from compare("wantInadmissible", queue.is_inadmissible(0), case.want["wantInadmissible"])
    yield from compare("how many there are", len(queue), 1)


def check_refusal(table: Table, case: Case) -> Iterator[str]:
    """TestGetNoFitReason: what a parked workload, and others of its shape, are told to have failed for."""
    given, queue = case.input, _queue()
    reason = RequeueReason(given["requeueReason"])
    queue.requeue(_request(0, "hash"), reason, ready=True, more_flavors=False, granular=given["conditionReason"])
    if given["deleteFromInadmissible"]:
        queue.remove(0)
    got = queue.class_refusal(0)
    yield from compare("wantOk", got is not None, case.want["wantOk"])
    yield from compare("wantReason", got or "", case.want["wantReason"])


def check_known_hash(table: Table, case: Case) -> Iterator[str]:
    """TestPushOrUpdateRespectsInadmissibleHashes: a newcomer of a shape that was refused."""
    queue = _queue()
    for shape in case.input.get("inadmissibleHashes") or ():
        _refuse(queue, shape)
    queue.push(_request(0, case.input["pushHash"]))
    yield from compare("active, parked", _counts(queue), (case.want["wantActive"], case.want["wantInadmissible"]))


def check_bulk(table: Table, case: Case) -> Iterator[str]:
    """TestRecordInadmissibleHash: how many are parked because one of their shape was refused."""
    queue = _queue()
    for number, shape in enumerate((case.input.get("heapWorkloads") or {}).values()):
        queue.push(_request(number, shape))
    _refuse(queue, case.input["hashToRecord"])
    active, parked = _counts(queue)
    wanted = tuple(case.want[name] for name in ("wantMoved", "wantActive", "wantInadmissible"))
    yield from compare("moved, active, parked", (parked, active, parked), wanted)


def check_parked(table: Table, case: Case) -> Iterator[str]:
    """TestInadmissibleWorkloads_…: the set of parked workloads, key by key."""
    given, queue = case.input, _queue()
    numbers: dict[str, int] = {}

    def park(key: str, info: Document) -> None:
        number = numbers.setdefault(key, len(numbers))
        queue.mark_inadmissible(WorkloadRequest(world.decode_workload(info["Obj"]), number, "q", KueueConfig()))

    for key, info in (given.get("initial") or {}).items():
        park(key, info)
    if given.get("value") is not None:
        park(given["key"], given["value"])
    elif table.name.endswith("_Delete"):
        queue.remove(numbers.get(given["key"], -1))
    listed = {request.id: request.workload for request, _ in queue.sorted_pending()}
    if "wantLen" in case.want:
        yield from compare("wantLen", _counts(queue)[1], case.want["wantLen"])
    if "wantEmpty" in case.want:
        yield from compare("wantEmpty", not len(queue), case.want["wantEmpty"])
    if table.name.endswith("_Get"):
        want = case.want.get("wantWorkload")
        expected = None if want is None else world.decode_workload(want["Obj"])
        yield from compare("wantWorkload", listed.get(numbers.get(given["key"], -1)), expected)
    if table.name.endswith("_Insert"):
        got = listed.get(numbers[given["key"]])
        yield from compare("the one under the key", got, world.decode_workload(given["value"]["Obj"]))


# Coming in, by a session.


_ERRORS = {
    "workload is inadmissible and can't be added to a LocalQueue": InadmissibleReason.NOT_WAITING,
    "localQueue doesn't exist or inactive": InadmissibleReason.NO_LOCAL_QUEUE,
    "clusterQueue doesn't exist": InadmissibleReason.NO_CLUSTER_QUEUE,
}
"""The manager's errors, and what they are called here."""


def check_add(table: Table, case: Case) -> Iterator[str]:
    """TestAddWorkload: is a workload taken, and by which LocalQueue is it remembered?"""
    fixtures, workload = table.fixtures, world.decode_workload(case.input["workload"])
    session = _session([world.decode(fixtures["cq"]), *world.decode_all(fixtures["queues"]), workload], case.gates)
    state = session._apply_noted_changes
    error = case.want.get("wantErr")
    found = queue_inadmissible_reason(state.setup, workload, state.config)
    wanted = None if error is None else _ERRORS[error["$error"]]
    yield from compare(
        "wantErr",
        InadmissibleReason.NO_LOCAL_QUEUE if found is InadmissibleReason.LOCAL_QUEUE_STOPPED else found,
        wanted,
    )
    record = state.workload_index.get(workload.key)
    known = isinstance(record, WorkloadRequest | Workload) and workload.local_queue in state.objects.local_queues
    assigned = {workload.key: workload.local_queue} if known else {}
    yield from compare("wantAssigned", assigned, dict(case.want.get("wantAssigned") or {}))
    yield from compare("queued", isinstance(record, WorkloadRequest), wanted is None)


def check_push(table: Table, case: Case) -> Iterator[str]:
    """Test_PushOrUpdate: a workload comes with or without a backoff that has not ended."""
    now = world.clock(table.fixtures["now"])
    workload = world.decode_workload(case.input["workload"]["Workload"])
    queue = LocalQueue(namespace=workload.namespace, name=workload.queue, cluster_queue="q")
    session = _session([ClusterQueue(name="q"), queue], case.gates, now)
    session.apply(workload, now)
    state = session._apply_noted_changes
    popped = popped_from(state.workload_index.queue("q"))
    wanted = case.want.get("wantWorkload")
    yield from compare("popped", _told(popped), None if wanted is None else _conditions(wanted["Obj"]))
    parked = {p.workload.key: _told(p) for p in session.pending_workloads("q") if p.inadmissible}
    expected = {
        key: _conditions(info["Obj"]) for key, info in (case.want.get("wantInAdmissibleWorkloads") or {}).items()
    }
    yield from compare("parked", parked, expected)


def _told(waiting: object) -> object:
    """What a waiting workload is and says, its conditions without their times."""
    workload = getattr(waiting, "workload", None)
    if not isinstance(workload, Workload):
        return None
    return workload.key, workload.requeue, {(c.type, c.status, c.reason, c.message) for c in workload.conditions}


def _conditions(document: Document) -> object:
    class Waiting:
        workload = world.decode_workload(document)

    return _told(Waiting)


def check_changed(table: Table, case: Case) -> Iterator[str]:
    """TestPushOrUpdateGenerationChanged: a parked workload's spec changes."""
    now = world.clock(table.fixtures["now"])
    updated = world.decode_workload(case.input["updatedWorkload"])
    first = Workload(namespace=updated.namespace, name=updated.name, created=now, pod_sets=updated.pod_sets)
    queue = LocalQueue(namespace=updated.namespace, name="", cluster_queue="q")
    things: list[Object] = [ClusterQueue(name="q"), queue, first]
    session = _session(things, case.gates, now)
    waiting = session._apply_noted_changes.workload_index.queue("q")
    popped = popped_from(waiting)
    assert popped is not None
    waiting.requeue(popped, RequeueReason.GENERIC, ready=True, more_flavors=False)
    session.apply(updated, now)
    wanted = (case.want["wantActiveWorkloads"], case.want["wantInadmissibleWorkloads"])
    yield from compare("active, parked", _counts(waiting), wanted)


def check_progress(table: Table, case: Case) -> Iterator[str]:
    """TestAddOrUpdateWorkloadCarriesLastAssignment: does an updated workload go on where its search stopped?"""
    given, workload = case.input, world.decode_workload(table.shared["wl"])
    queue = LocalQueue(namespace=workload.namespace, name=workload.queue, cluster_queue="cq")
    session = _session([ClusterQueue(name="cq"), queue, workload], case.gates)
    state = session._apply_noted_changes
    request = state.workload_index.get(workload.key)
    assert isinstance(request, WorkloadRequest)
    recorded = given["recorded"]
    state.generations["cq"] = recorded["ClusterQueueGeneration"]
    state.cycles = recorded["SchedulingCycle"] + 1
    state.progress[request.id] = FlavorScanProgress(
        tuple(recorded["LastTriedFlavorIdx"]),
        recorded["ClusterQueueGeneration"],
        recorded["SchedulingCycle"],
        request.scheduling_hash,
    )
    waiting = state.workload_index.queue("cq")
    if given["inadmissible"] or given["inflight"]:
        popped_from(waiting)
    if given["inadmissible"]:
        waiting.requeue(request, RequeueReason.NO_FIT, ready=True, more_flavors=False)
    pod_sets = workload.pod_sets
    if given["changeShape"]:
        pod_sets = tuple(_grown(pod_set) for pod_set in pod_sets)
    session.apply(_labelled(workload, pod_sets), _NOW)
    after = state.workload_index.get(workload.key)
    assert isinstance(after, WorkloadRequest)
    yield from compare("wantCarried", resume_position(state, after) is not None, case.want["wantCarried"])


def _grown(pod_set: PodSet) -> PodSet:
    return PodSet(name=pod_set.name, count=pod_set.count + 3, template=pod_set.template)


def _labelled(workload: Workload, pod_sets: tuple[PodSet, ...]) -> Workload:
    return replace(workload, labels={"updated": "true"}, pod_sets=pod_sets)


def check_requeue(table: Table, case: Case) -> Iterator[str]:
    """TestRequeueWorkloadStrictFIFO: the newest object decides whether a workload comes back."""
    given, fixtures = case.input, table.fixtures
    workload = world.decode_workload(given["workload"])
    session = _session([world.decode(fixtures["cq"]), *world.decode_all(fixtures["queues"])], case.gates)
    if given["inQueue"]:
        session.apply(workload, _NOW)
    before = _is_queued(session, workload)
    if given["inClient"]:
        session.apply(workload, _NOW)
    got = _is_queued(session, workload) and not before
    yield from compare("wantRequeued", got, case.want["wantRequeued"])


def _is_queued(session: KueueSession, workload: Workload) -> bool:
    return isinstance(session._apply_noted_changes.workload_index.get(workload.key), WorkloadRequest)


def check_heads(table: Table, case: Case) -> Iterator[str]:
    """TestHeads: the heads of the ClusterQueues that are active, here those whose names say so."""
    queues = [
        replace(queue, stop_policy=StopPolicy.NONE if queue.name.startswith("active-") else StopPolicy.HOLD)
        for queue in world.decode_all(table.fixtures["clusterQueues"])
        if isinstance(queue, ClusterQueue)
    ]
    workloads = [world.decode_workload(document) for document in case.input.get("workloads") or ()]
    session = _session([*queues, *world.decode_all(table.fixtures["queues"]), *workloads], case.gates)
    state = session._apply_noted_changes
    assigned = {_key(w.key): _key(w.local_queue) for w in workloads if _is_queued(session, w)}
    yield from compare("wantAssigned", assigned, dict(case.want.get("wantAssigned") or {}))
    heads = [
        found.workload.name for rules in state.setup.queues.values() if (found := state.next_head(rules)) is not None
    ]
    yield from compare("wantWorkloads", sorted(heads), sorted(case.want.get("wantWorkloads") or ()))


def check_listing(table: Table, case: Case) -> Iterator[str]:
    """TestGetPendingWorkloadsInfo: everybody who waits in a ClusterQueue, in order."""
    fixtures = table.fixtures
    names = ("clusterQueues", "queues", "workloads")
    session = _session([thing for name in names for thing in world.decode_all(fixtures[name])], case.gates)
    got = [(_key(p.workload.key), p.workload.queue) for p in session.pending_workloads(case.input["cqName"])]
    want = [world.decode_workload(info["Obj"]) for info in case.want.get("wantPendingWorkloadsInfo") or ()]
    yield from compare("wantPendingWorkloadsInfo", got, [(_key(w.key), w.queue) for w in want])


def check_stable(table: Table, case: Case) -> Iterator[str]:
    """TestSnapshotDeterministicOrder: the same list each time it is asked for."""
    now, given = world.clock(table.fixtures["now"]), case.input
    door = LocalQueue(namespace="default", name=table.fixtures["lqName"], cluster_queue="q")
    things: list[Object] = [ClusterQueue(name="q"), door]
    session = _session(things, case.gates, now)
    for name in ("workloads", "inadmissibleWorkloads"):
        for document in given.get(name) or ():
            session.apply(world.decode_workload(document), now)
    first = [p.workload.key for p in session.pending_workloads("q")]
    yield from compare("how many", len(first), sum(len(given.get(name) or ()) for name in given))
    for _ in range(9):
        yield from compare("order", [p.workload.key for p in session.pending_workloads("q")], first)


def check_waking(table: Table, case: Case) -> Iterator[str]:
    """TestQueueInadmissibleWorkloads: parked workloads of whole trees come back, each tree being woken once."""
    given, now = case.input, world.clock(table.fixtures["now"])
    names = ("cohorts", "clusterQueues", "localQueues")
    session = _session([thing for name in names for thing in world.decode_all(given.get(name))], case.gates, now)
    for document in given.get("workloads") or ():
        session.apply(world.decode_workload(document), now)
    state = session._apply_noted_changes
    for name in state.setup.queues:
        waiting = state.workload_index.queue(name)
        while (popped := popped_from(waiting)) is not None:
            waiting.requeue(popped, RequeueReason.GENERIC, ready=True, more_flavors=False)
    parked = _waiting(session, parked=True)
    state.due_trees.update(dict.fromkeys(given["cqNames"]))
    trees = {tuple(state.queues_in_tree(name)) for name in given["cqNames"]} - {()}
    session.requeue_inadmissible(now)
    after = _waiting(session, parked=True)
    yield from compare(
        "wantInadmissible", after, {k: sorted(v) for k, v in (case.want.get("wantInadmissible") or {}).items()}
    )
    active = _waiting(session, parked=False)
    yield from compare("wantActive", active, {k: sorted(v) for k, v in (case.want.get("wantActive") or {}).items()})
    moved = sum(map(len, parked.values())) - sum(map(len, after.values()))
    yield from compare("wantMovedCount", moved, case.want["wantMovedCount"])
    yield from compare("trees", len(trees), case.want["wantMoveWorkloadsLogCount"])


def _waiting(session: KueueSession, *, parked: bool) -> dict[str, list[str]]:
    """ClusterQueue → who waits there, or is parked."""
    found = {
        name: sorted(p.workload.key for p in session.pending_workloads(name) if p.inadmissible == parked)
        for name in session._apply_noted_changes.setup.queues
    }
    return {name: keys for name, keys in found.items() if keys}


def check_interval(table: Table, case: Case) -> Iterator[str]:
    """TestNewRequeuer: for how long wake-ups are gathered."""
    got = KueueConfig(gates={**case.gates, **(case.input["args"].get("featureGates") or {})}).requeue_interval
    yield from compare("batchPeriod", got, parse_span(case.want["want"]["batchPeriod"]))


def check_count(table: Table, case: Case) -> Iterator[str]:
    """TestStatus: how many wait at a LocalQueue, whether or not there is a ClusterQueue behind it."""
    fixtures = table.fixtures
    snapshot = _snapshot([*world.decode_all(fixtures["queues"]), *world.decode_all(fixtures["workloads"])])
    asked = world.decode(case.input["queue"])
    assert isinstance(asked, LocalQueue)
    known = snapshot.local_queues.get(asked.key)
    yield from compare("wantErr", known is None, case.want.get("wantErr") is not None)
    book = queue_index(snapshot).cluster_queue(known.cluster_queue if known is not None else "")
    yield from compare("wantStatus", book.local_count(asked.key).pending, case.want["wantStatus"])


def check_unadmitted(table: Table, case: Case) -> Iterator[str]:
    """TestUpdateUnadmittedWorkload: in which words a workload is counted as not admitted, and where."""
    workload = world.decode_workload(case.input["workload"])
    session = _session([world.decode(table.fixtures["cq"]), world.decode(table.fixtures["lq"]), workload], case.gates)
    why = conditions.unadmitted_reason(workload)
    got = {
        "ClusterQueue": session._apply_noted_changes.setup.cluster_queue_of(workload.local_queue),
        "LocalQueueName": workload.queue,
        "LocalQueueNamespace": workload.namespace,
        "Reason": why.reason if why is not None else "",
        "UnderlyingCause": why.cause if why is not None else "",
    }
    yield from compare("expectedStatus", {k: v for k, v in got.items() if v}, dict(case.want["expectedStatus"]))


def check_second_pass(table: Table, case: Case) -> Iterator[str]:
    """TestQueueSecondPassIfNeeded: whose turn has come after some time; an update is an attempt that was made."""
    given, now = case.input, world.clock(table.shared["fakeClock"])
    workloads = [world.decode_workload(document) for document in given.get("workloads") or ()]
    first = {workload.key: workload for workload in reversed(workloads)}
    doors = {
        w.local_queue: LocalQueue(namespace=w.namespace, name=w.queue, cluster_queue="tas-main") for w in workloads
    }
    config = KueueConfig(gates=case.gates)
    state = world.session(
        config, [ClusterQueue(name="tas-main"), *doors.values(), *first.values()], now
    )._apply_noted_changes
    state.second_passes.clear()
    for workload in workloads:
        schedule_second_pass(state, state.workload_index.id_of(workload.key), workload)
    if given.get("updateWorkload") is not None:
        update = world.decode_workload(given["updateWorkload"])
        queued = schedule_second_pass(state, state.workload_index.id_of(update.key), update, 1)
        if case.want.get("wantUpdateQueued") is not None:
            yield from compare("wantUpdateQueued", queued, case.want["wantUpdateQueued"])
    state.now = now + parse_span(given["passTime"])
    ready = [holding.key for holding, _ in take_due_second_passes(state)]
    yield from compare("wantReady", ready, sorted(case.want.get("wantReady") or ()))


# Looking at queues from outside.


def check_visible(table: Table, case: Case) -> Iterator[str]:
    """TestPendingWorkloadsInCQ, …InLQ: one page of who waits, with places that count from 0."""
    given, request = case.input, case.input["req"]
    names = ("clusterQueues", "queues", "workloads")
    snapshot = _snapshot([thing for name in names for thing in world.decode_all(given.get(name))])
    if table.name.endswith("InLQ"):
        door = snapshot.local_queues.get(f"{request.get('nsName') or ''}/{request['queueName']}")
        queue, local, known = door.cluster_queue if door else "", door.key if door else "", door is not None
    else:
        queue, local, known = request["queueName"], "", request["queueName"] in snapshot.cluster_queues
    want = case.want.get("wantResp") or {}
    yield from compare("wantErr", not known, want.get("wantErr") is not None)
    asked = request["queryParams"]
    listed = pending(snapshot, queue, local_queue=local, offset=asked["offset"], limit=asked["limit"]) if known else []
    got = [_seen(snapshot, entry.workload) for entry in listed]
    yield from compare("items", got, [_expected(item) for item in want.get("wantPendingWorkloads") or ()])


def _seen(snapshot: Snapshot, workload: Workload) -> tuple[object, ...]:
    place = position(snapshot, workload.key)
    assert place is not None
    places = place.in_cluster_queue - 1, place.in_local_queue - 1
    return workload.namespace, workload.name, workload.created, workload.priority, workload.queue, *places


def _expected(item: Document) -> tuple[object, ...]:
    meta = item["metadata"]
    return (
        *(meta["namespace"], meta["name"], world.clock(meta["creationTimestamp"]), item.get("priority", 0)),
        *(item["localQueueName"], item.get("positionInClusterQueue", 0), item.get("positionInLocalQueue", 0)),
    )


def check_priority(table: Table, case: Case) -> Iterator[str]:
    """TestNewPendingWorkloadPriority: the priority that is shown."""
    yield from compare("wantPriority", world.decode_workload(case.input["wl"]).priority, case.want["wantPriority"])


def _snapshot(things: Iterable[Object]) -> Snapshot:
    state = ClusterState(_NOW)
    for thing in things:
        state.apply(Applied(_NOW, thing))
    return state.freeze()


CHECKS: dict[str, Check] = {
    f"cache_queue/{name}": lambda table, case, check=check: list(check(table, case))
    for name, check in {
        "TestBestEffortFIFORequeueIfNotPresent": check_best_effort,
        "TestStrictFIFORequeueIfNotPresent": check_strict,
        "TestGetNoFitReason": check_refusal,
        "TestPushOrUpdateRespectsInadmissibleHashes": check_known_hash,
        "TestRecordInadmissibleHash": check_bulk,
        **{f"TestInadmissibleWorkloads_{name}": check_parked for name in ("Delete", "Empty", "Get", "Insert", "Len")},
        "TestAddWorkload": check_add,
        "Test_PushOrUpdate": check_push,
        "TestPushOrUpdateGenerationChanged": check_changed,
        "TestAddOrUpdateWorkloadCarriesLastAssignment": check_progress,
        "TestRequeueWorkloadStrictFIFO": check_requeue,
        "TestHeads": check_heads,
        "TestGetPendingWorkloadsInfo": check_listing,
        "TestSnapshotDeterministicOrder": check_stable,
        "TestQueueInadmissibleWorkloads": check_waking,
        "TestNewRequeuer": check_interval,
        "TestStatus": check_count,
        "TestUpdateUnadmittedWorkload": check_unadmitted,
        "TestQueueSecondPassIfNeeded": check_second_pass,
    }.items()
} | {
    "visibility_storage/TestPendingWorkloadsInCQ": lambda table, case: list(check_visible(table, case)),
    "visibility_storage/TestPendingWorkloadsInLQ": lambda table, case: list(check_visible(table, case)),
    "visibility_storage/TestNewPendingWorkloadPriority": lambda table, case: list(check_priority(table, case)),
}
