"""cache_queue, scheduler: who is next in a queue, in which order heads are processed, what is kept for them."""

from collections.abc import Iterator

from gpuconsole.model.cluster import Namespace
from gpuconsole.model.labels import LabelSelector, Requirement
from gpuconsole.model.objects import Object
from gpuconsole.model.pod_template import PodSet
from gpuconsole.model.queues import ClusterQueue, FlavorQuotas, LocalQueue, Quota, ResourceFlavor, ResourceGroup
from gpuconsole.model.workloads import Workload
from gpuconsole.scheduling.kueue.assignment import Assignment, FlavorAssignmentMode, PodSetResult
from gpuconsole.scheduling.kueue.cluster_queue import ClusterQueueHeap, RequeueReason
from gpuconsole.scheduling.kueue.config import KueueConfig
from gpuconsole.scheduling.kueue.entry import CycleEntry
from gpuconsole.scheduling.kueue.pod_resources import WorkloadRequest
from gpuconsole.scheduling.kueue.preemption.fair_sharing import DominantResourceShare
from gpuconsole.scheduling.kueue.processing import capacity_to_reserve, sorted_for_processing, tournament_rank
from gpuconsole.scheduling.kueue.session import KueueSession
from gpuconsole.scheduling.kueue.workloads import backoff_ended, enqueue, request_of
from tests.conformance import world
from tests.conformance.queueing import popped_from
from tests.conformance.tables import Case, Check, Table, compare

_QUEUE = ClusterQueue(name="q")


def check_strict(table: Table, case: Case) -> Iterator[str]:
    """TestStrictFIFO: which of two workloads is popped first."""
    ordering = case.input.get("workloadOrdering") or {"PodsReadyRequeuingTimestamp": "Eviction"}
    config = world.ordered_by(ordering["PodsReadyRequeuingTimestamp"], case.gates)
    queue = ClusterQueueHeap(strict=True, hashing=False)
    for number, name in enumerate(("w1", "w2")):
        queue.push(WorkloadRequest(world.decode_workload(case.input[name]), number, "q", config))
    head = popped_from(queue)
    yield from compare("expected", head.workload.name if head is not None else "", case.want["expected"])


def check_backoff(table: Table, case: Case) -> Iterator[str]:
    """TestBackoffWaitingTimeExpired: may an evicted workload be tried again?"""
    workload = world.decode_workload(case.input["workloadInfo"]["Obj"])
    got = backoff_ended(workload, world.clock(table.fixtures["now"]))
    yield from compare("want", got, case.want["want"])


def check_hashing(table: Table, case: Case) -> Iterator[str]:
    """TestRequeueHashTriggerByReason: does a refusal park those of the same shape, too?"""
    queue = ClusterQueueHeap(strict=False, hashing=True)
    for number in range(2):
        workload = Workload(name=f"w{number}", uid=f"{number}", pod_sets=(PodSet(),))
        queue.push(WorkloadRequest(workload, number, "q", KueueConfig()))
    head = popped_from(queue)
    assert head is not None
    queue.requeue(head, RequeueReason(case.input["reason"]), ready=True, more_flavors=False)
    yield from compare("wantHash", queue.is_inadmissible(1), case.want["wantHash"])


_NAMESPACES = {"ns1": "eng", "ns2": "sales", "ns3": "marketing"}
_SELECTOR = LabelSelector(match_expressions=(Requirement("dep", "In", ("eng", "sales")),))


def check_queue(table: Table, case: Case) -> Iterator[str]:
    """TestClusterQueueImpl: workloads come, come back, change, leave and are woken, in this order."""
    given, now = case.input, world.clock(table.fixtures["now"])
    names = (
        *("workloadsToAdd", "inadmissibleWorkloadsToRequeue", "admissibleWorkloadsToRequeue"),
        *("workloadsToUpdate", "workloadsToDelete"),
    )
    added, refused, granted, updated, deleted = (
        [world.decode_workload(listed.get("Obj") or listed) for listed in given.get(name) or ()] for name in names
    )
    everyone = [*added, *refused, *granted, *updated, *deleted]
    session = world.session(
        KueueConfig(gates=case.gates),
        [
            *(Namespace(name=name, labels={"dep": label}) for name, label in _NAMESPACES.items()),
            ClusterQueue(name="q", namespace_selector=_SELECTOR),
            *(LocalQueue(namespace=w.namespace, name=w.queue, cluster_queue="q") for w in everyone),
        ],
        now,
    )
    for workload in added:
        session.apply(workload, now)
    state = session._state
    for workload in refused:
        request = request_of(state, workload, state.workload_index.id_of(workload.key), "q")
        if state.workload_index.get(workload.key) is None:
            state.workload_index.records[request.id] = request
            ready = backoff_ended(workload, now)
            state.workload_index.queue("q").requeue(request, RequeueReason.GENERIC, ready=ready, more_flavors=False)
    for workload in granted:
        enqueue(state, request_of(state, workload, state.workload_index.id_of(workload.key), "q"))
    for workload in updated:
        session.apply(workload, now)
    for workload in deleted:
        session.delete("workloads", workload.key, now)
    before = _active(session)
    if given.get("queueInadmissibleWorkloads"):
        state.due_trees["q"] = None
        session.requeue_inadmissible(now)
        moved = len(_active(session)) - len(before)
        yield from compare("wantInadmissibleWorkloadsRequeued", moved, case.want["wantInadmissibleWorkloadsRequeued"])
    yield from compare("active", _active(session), sorted(case.want.get("wantActiveWorkloads") or ()))
    yield from compare("wantPending", len(session.pending_workloads("q")), case.want["wantPending"])


def _active(session: KueueSession) -> list[str]:
    return sorted(pending.workload.key for pending in session.pending_workloads("q") if not pending.inadmissible)


def check_entries(table: Table, case: Case) -> Iterator[str]:
    """TestEntryOrdering: the order in which heads are processed without fair sharing."""
    ordering = case.input.get("workloadOrdering") or {"PodsReadyRequeuingTimestamp": "Eviction"}
    config = world.ordered_by(ordering.get("PodsReadyRequeuingTimestamp", "Eviction"), case.gates)
    state = world.state(config, [_QUEUE], 0)
    entries = []
    for number, listed in enumerate(case.input["input"]):
        request = WorkloadRequest(world.decode_workload(listed["Head"]["Info"]["Obj"]), number, "q", config)
        preemptor = bool(listed["Head"].get("IsPreemptor"))
        entry = CycleEntry(request, state.setup.queues["q"], preemptor=preemptor)
        entry.assignment.borrowing_height = (listed.get("assignment") or {}).get("Borrowing", 0)
        entries.append(entry)
    got = [entry.request.workload.name for entry in sorted_for_processing(state.context(), entries)]
    yield from compare("wantOrder", got, case.want["wantOrder"])


def check_comparer(table: Table, case: Case) -> Iterator[str]:
    """TestEntryComparerLess: does one head of a cohort go before another under fair sharing?"""
    config = KueueConfig(fair_sharing=True, gates=case.gates)
    flavors = FlavorQuotas("default", {"cpu": Quota(1)})
    groups = (ResourceGroup(("cpu",), (flavors,)),)
    things: list[Object] = [ResourceFlavor(name="default"), ClusterQueue(name="q", resource_groups=groups)]
    context = world.state(config, things, 0).context()
    numbers = context.setup.tree.numbers
    shares = {e["key"]["workloadKey"]: e.get("value") or {} for e in case.input.get("drsValues") or ()}
    asked = case.input.get("requestedFRs") or {}
    ranks = []
    for number, name in enumerate(("a", "b")):
        head = case.input[name]["Head"]
        request = WorkloadRequest(world.decode_workload(head["Info"]["Obj"]), number, "q", config)
        entry = CycleEntry(request, context.setup.queues["q"], preemptor=bool(head.get("IsPreemptor")))
        key = request.workload.key
        entry.assignment.usage = {numbers[_column(name)]: amount for name, amount in asked.get(key, {}).items()}
        drs = shares.get(key, {})
        borrowed = tuple(numbers[column["Flavor"], column["Resource"]] for column in drs.get("borrowedFRs") or ())
        ranks.append(
            tournament_rank(
                context,
                entry,
                DominantResourceShare(drs.get("unweightedRatio", 0.0), drs.get("fairWeight", 0.0), borrowed),
            )
        )
    yield from compare("wantLess", ranks[0] < ranks[1], case.want["wantLess"])


def check_reserve(table: Table, case: Case) -> Iterator[str]:
    """TestResourcesToReserve: what is kept for a head that nobody can be preempted for."""
    given = case.input
    queue = table.fixtures["cq"]
    state = world.state(KueueConfig(gates=case.gates), [world.decode(queue)], 0)
    context = state.context()
    tree = context.setup.tree
    rules = context.setup.queues[queue["metadata"]["name"]]
    uses = [(tree.numbers[_column(key)], amount) for key, amount in (given.get("cqUsage") or {}).items()]
    context.snapshot.usage.add(rules.node, uses)
    assignment = Assignment()
    assignment.append(PodSetResult(PodSet(), 1, {}))
    assignment.borrowing_height = given.get("borrowing", 0)
    assignment.usage = {tree.numbers[_column(key)]: n for key, n in (given.get("assignmentUsage") or {}).items()}
    mode = {
        "Fit": FlavorAssignmentMode.FIT,
        "Preempt": FlavorAssignmentMode.PREEMPT,
        "NoFit": FlavorAssignmentMode.NO_FIT,
    }[given["assignmentMode"]]
    kept = (
        assignment.quota_usage
        if mode == FlavorAssignmentMode.FIT
        else capacity_to_reserve(context.snapshot.usage, rules, assignment)
    )
    got = {"/".join(tree.columns[column]): amount for column, amount in kept}
    yield from compare("wantReserved", got, case.want["wantReserved"])


def _column(key: str) -> tuple[str, str]:
    flavor, _, resource = key.partition("/")
    return flavor, resource


CHECKS: dict[str, Check] = {
    "scheduler/TestEntryOrdering": lambda table, case: list(check_entries(table, case)),
    "scheduler/TestEntryComparerLess": lambda table, case: list(check_comparer(table, case)),
    "scheduler/TestResourcesToReserve": lambda table, case: list(check_reserve(table, case)),
    "cache_queue/TestClusterQueueImpl": lambda table, case: list(check_queue(table, case)),
    "cache_queue/TestBackoffWaitingTimeExpired": lambda table, case: list(check_backoff(table, case)),
    "cache_queue/TestRequeueHashTriggerByReason": lambda table, case: list(check_hashing(table, case)),
    "cache_queue/TestStrictFIFO": lambda table, case: list(check_strict(table, case)),
}
