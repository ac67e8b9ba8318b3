"""scheduler_preemption*: whose workloads a preemptor takes, in a cluster that is given as it stands."""

from collections.abc import Iterator, Mapping, Sequence

from msgspec.structs import replace

from gpuconsole.model.clock import MINUTE, Time
from gpuconsole.model.events import PreemptionRule
from gpuconsole.model.queues import LocalQueue, PreemptionPolicy
from gpuconsole.model.resources import BILLIONTH
from gpuconsole.model.workloads import Workload
from gpuconsole.scheduling.kueue import conditions, messages
from gpuconsole.scheduling.kueue.apply_decisions import priority_text
from gpuconsole.scheduling.kueue.assignment import Assignment, FlavorAssignment, FlavorAssignmentMode, PodSetResult
from gpuconsole.scheduling.kueue.config import DEFAULT_STRATEGIES, AdmissionFairSharing, KueueConfig, PreemptionStrategy
from gpuconsole.scheduling.kueue.entry import CycleEntry
from gpuconsole.scheduling.kueue.pod_resources import Holding, WorkloadRequest
from gpuconsole.scheduling.kueue.preemption import PreemptionSearch, PreemptionTarget, find_targets
from gpuconsole.scheduling.kueue.preemption.fair_sharing import TargetClusterQueueOrdering
from gpuconsole.scheduling.kueue.preemption.search import merge_in_order, policy_allows
from gpuconsole.scheduling.kueue.processing import issue_evictions
from gpuconsole.scheduling.kueue.state import KueueState
from tests.conformance import world
from tests.conformance.tables import Case, Check, Document, Table, compare

MODES = {"NoFit": FlavorAssignmentMode.NO_FIT, "Preempt": FlavorAssignmentMode.PREEMPT, "Fit": FlavorAssignmentMode.FIT}


def search_of(state: KueueState, queue: str, workload: Workload, assignment: Assignment) -> PreemptionSearch:
    """The search for victims that an assignment calls for."""
    request = WorkloadRequest(workload, state.workload_index.id_of(workload.key), queue, state.config)
    rules = state.setup.queues[queue]
    return PreemptionSearch(
        state.context(), rules, request, assignment.columns_needing_preemption, assignment.preemption_usage
    )


def assignment_of(state: KueueState, workload: Workload, queue: str, document: Document) -> Assignment:
    """An assignment as a case lists it; what is requested is the workload's."""
    request = WorkloadRequest(workload, 0, queue, state.config)
    assignment = Assignment()
    for listed, needs in zip(document["PodSets"], request.pod_sets, strict=True):
        count = listed.get("Count", needs.count)
        result = PodSetResult(needs.pod_set, count, needs.requests_for(count))
        for resource, flavor in (listed.get("Flavors") or {}).items():
            column = state.setup.tree.numbers[flavor["Name"], resource]
            result.choices[resource] = FlavorAssignment(flavor["Name"], column, MODES[flavor.get("Mode", "NoFit")], 0)
        result.reasons = ["as the case says"]
        assignment.append(result)
    return assignment


def check_preemption(table: Table, case: Case) -> Iterator[str]:
    """TestPreemption, TestHierarchicalPreemptions: who is evicted, and what all workloads say afterwards."""
    given, now = case.input, world.clock(table.fixtures["now"])
    flavors = table.fixtures.get("flavors") or [table.fixtures["rf"]]
    queues = given.get("clusterQueues") or [table.fixtures["cq"]]
    admitted = given.get("admitted") or given.get("workloads") or ()
    documents = [*flavors, *(given.get("cohorts") or ()), *queues, *admitted]
    state = world.state(KueueConfig(gates=case.gates), world.decode_all(documents), now)
    incoming = world.decode_workload(given["incoming"])
    queue = given.get("targetCQ") or queues[0]["metadata"]["name"]
    assignment = assignment_of(state, incoming, queue, given["assignment"])
    search = search_of(state, queue, incoming, assignment)
    before = search.usage.usage[:]
    targets = find_targets(search)
    yield from compare("the accounts afterwards", search.usage.usage, before)
    if "wantPreempted" in case.want:
        yield from compare("wantPreempted", len(targets), case.want["wantPreempted"])
    if "wantWorkloads" in case.want:
        told = _told(state, incoming, queue, targets, now)
        workloads = {w.key: world.comparable(told.get(w.key, w)) for w in map(world.decode_workload, admitted)}
        wanted = {w.key: world.comparable(w) for w in map(world.decode_workload, case.want["wantWorkloads"])}
        yield from compare("workloads", sorted(workloads), sorted(wanted))
        for key in workloads.keys() & wanted.keys():
            yield from compare(key, workloads[key], wanted[key])


def _told(
    state: KueueState, incoming: Workload, queue: str, targets: Sequence[PreemptionTarget], now: Time
) -> Mapping[str, Workload]:
    """The victims with what they are told; those that are being evicted already are not told again."""
    told = {}
    path = state.setup.queues[queue].path_text
    for target in targets:
        if not target.holding.evicted:
            theirs = state.setup.queues[target.holding.cluster_queue].path_text
            message = messages.preempted_message(incoming, target.rule, path, theirs)
            told[target.holding.key] = conditions.mark_evicted(
                target.holding.workload, "Preempted", message, now, target.rule
            )
    return told


def check_fair(table: Table, case: Case) -> Iterator[str]:
    """TestFairPreemptions: the set of victims with their reasons; a workload's uid is its name."""
    given, now = case.input, world.clock(table.fixtures["now"])
    flavors = given.get("flavors") or table.fixtures["flavors"]
    things = world.decode_all([*flavors, *(given.get("cohorts") or ()), *given["clusterQueues"]])
    admitted = [world.decode_workload(document) for document in given["admitted"]]
    strategies = tuple(PreemptionStrategy(name) for name in given.get("strategies") or ()) or DEFAULT_STRATEGIES
    config = KueueConfig(fair_sharing=True, strategies=strategies, gates=case.gates)
    state = world.state(config, [*things, *(replace(w, uid=w.name) for w in admitted)], now)
    incoming, queue = world.decode_workload(given["incoming"]), given["targetCQ"]
    flavor = given.get("assignmentFlavor") or "default"
    listed = {"PodSets": [{"Flavors": {"cpu": {"Name": flavor, "Mode": "Preempt"}}}]}
    search = search_of(state, queue, incoming, assignment_of(state, incoming, queue, listed))
    targets = [(target.holding, target.rule) for target in find_targets(search)]
    got = sorted(f"{_reference(holding)}:{rule.value if rule is not None else ''}" for holding, rule in targets)
    yield from compare("wantPreempted", got, sorted(case.want.get("wantPreempted") or ()))


def _reference(holding: Holding) -> str:
    """`namespace/name`; the tables' workloads have no namespace."""
    return f"/{holding.workload.name}"


def check_policy(table: Table, case: Case) -> Iterator[str]:
    """TestSatisfiesPreemptionPolicy: may this workload take that one's quota?"""
    given = case.input
    queue = {
        "kind": "ClusterQueue",
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "metadata": {"name": "any"},
        "spec": {"namespaceSelector": {}},
    }
    candidate = world.decode_workload(given["candidate"])
    held = world.decode_workload(
        {
            **given["candidate"],
            "status": {
                "conditions": [*(given["candidate"].get("status") or {}).get("conditions", ()), _RESERVED],
                "admission": {"clusterQueue": "any"},
            },
        }
    )
    now = world.clock(table.fixtures["now"])
    state = world.state(KueueConfig(gates=case.gates), [world.decode(queue), held], now)
    search = search_of(state, "any", world.decode_workload(given["preemptor"]), Assignment())
    holding = state.workload_index.get(candidate.key)
    assert isinstance(holding, Holding)
    yield from compare("want", policy_allows(search, PreemptionPolicy(given["policy"]))(holding), case.want["want"])


_RESERVED = {"type": "QuotaReserved", "status": "True", "reason": "Test", "lastTransitionTime": "2020-01-01T00:00:00Z"}


def check_order_of_queues(table: Table, case: Case) -> Iterator[str]:
    """TestMakeClusterQueueOrdering: whose turn it is, with a workload taken or the queue dropped at each."""
    given, now = case.input, world.clock(table.fixtures["now"])
    documents = [*(given.get("cohorts") or ()), *given["clusterQueues"], *(given.get("admitted") or ())]
    state = world.state(KueueConfig(fair_sharing=True, gates=case.gates), world.decode_all(documents), now)
    preemptor = given["preemptorCQ"]
    search = search_of(state, preemptor, Workload(name="preemptor"), Assignment())
    candidates = [holding for name in given["candidateCQs"] for holding in _as_listed(state, name, given)]
    order = TargetClusterQueueOrdering(search, candidates)
    actions = iter(given.get("actions") or ())
    names = []
    for node in order.iterate():
        names.append(state.setup.tree.names[node])
        if next(actions, "") == "drop":
            order.drop_queue(node)
        else:
            order.take_candidate(node)
    yield from compare("wantOrder", names, case.want.get("wantOrder") or [])


def _as_listed(state: KueueState, queue: str, given: Document) -> list[Holding]:
    keys = [world.decode_workload(document).key for document in given.get("admitted") or ()]
    held = {holding.key: holding for holding in state.workload_index.holdings_in_preemption_order(queue)}
    return [held[key] for key in keys if key in held]


def check_order_of_candidates(table: Table, case: Case) -> Iterator[str]:
    """TestCandidatesOrdering: who goes first; a usage of its LocalQueue that is told means that queues take turns."""
    now = world.clock(table.fixtures["now"])
    workloads = []
    names = {"preemptor": False}
    doors: dict[str, LocalQueue] = {}
    for info in case.input["candidates"]:
        queue = info.get("ClusterQueue", "")
        workload = world.decode_workload(info["Obj"])
        usage = info.get("LocalQueueFSUsage")
        names[queue] = names.get(queue, False) or usage is not None
        doors[workload.local_queue] = LocalQueue(
            namespace=workload.namespace,
            name=workload.queue,
            cluster_queue=queue,
            consumed={"any": round((usage or 0) * BILLIONTH)},
        )
        held = conditions.reserve_quota(workload, world.admission({"clusterQueue": queue}), world.LONG_AGO)
        kept = workload if workload.reserved else held
        workloads.append(replace(kept, admission=world.admission({"clusterQueue": queue})))
    queues = [_plain_queue(name, turns=names[name]) for name in sorted(names)]
    things = [*world.decode_all(queues), *doors.values(), *workloads]
    settings = AdmissionFairSharing(usage_half_life=MINUTE)
    state = world.state(KueueConfig(admission_fair_sharing=settings, gates=case.gates), things, now)
    search = search_of(state, "preemptor", Workload(name="preemptor"), Assignment())
    holdings = [holding for name in names for holding in search.context.held_by(name)]
    got = [_reference(holding) for holding in merge_in_order(search, holdings, lambda held: held)]
    yield from compare("wantCandidates", got, [f"/{key.split('/')[-1]}" for key in case.want["wantCandidates"]])


def _plain_queue(name: str, *, turns: bool = False) -> Document:
    mode = "UsageBasedAdmissionFairSharing" if turns else "NoAdmissionFairSharing"
    return {
        "kind": "ClusterQueue",
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "metadata": {"name": name},
        "spec": {"namespaceSelector": {}, "admissionScope": {"admissionMode": mode}},
    }


def check_duplicate(table: Table, case: Case) -> Iterator[str]:
    """TestIssuePreemptionsSkipsDuplicate: a victim is asked to go once, however often it is chosen meanwhile."""
    given, now = case.input, world.clock(table.fixtures["now"])
    documents = [table.fixtures["rf"], table.fixtures["cq"], *given["workloads"]]
    state = world.state(KueueConfig(gates=case.gates), world.decode_all(documents), now)
    incoming, queue = world.decode_workload(given["incoming"]), table.fixtures["cq"]["metadata"]["name"]
    search = search_of(state, queue, incoming, assignment_of(state, incoming, queue, given["assignment"]))
    entry = CycleEntry(search.request, search.rules)
    entry.targets = find_targets(search)
    for turn, want in ((1, 1), (2, 0)):
        entry.message = ""
        entry.requeue_until_victims_terminated(len(entry.targets))
        yield from compare(f"told in turn {turn}", entry.message, messages.pending_preemption_message("", 1))
        yield from compare(f"asked in turn {turn}", len(list(issue_evictions(state, search.context, entry))), want)


def check_message(table: Table, case: Case) -> Iterator[str]:
    """TestPreemptionMessage: what a victim is told."""
    given = case.input
    rule = PreemptionRule(given["reason"]) if given["reason"] else None
    metadata = {"name": "any", **(given["preemptor"].get("metadata") or {})}
    preemptor = world.decode_workload({**given["preemptor"], "metadata": metadata})
    got = messages.preempted_message(preemptor, rule, given["preemptorPath"], given["preempteePath"])
    yield from compare("want", got, case.want["want"])


def check_priorities(table: Table, case: Case) -> Iterator[str]:
    """TestPriorityInfo: a priority and what it is made of, as events tell it."""
    given = case.input["wl"]
    workload = world.decode_workload({**given, "metadata": {"name": "any", **(given.get("metadata") or {})}})
    config = KueueConfig(gates={**(case.input.get("featureGates") or {}), **case.gates})
    want = case.want
    text = f"{want['wantEffective']} (base: {want['wantBase']}, boost: {want['wantBoost']})"
    yield from compare("priority", priority_text(workload, config), text)


CHECKS: dict[str, Check] = {
    "scheduler_preemption/TestIssuePreemptionsSkipsDuplicate": lambda table, case: list(check_duplicate(table, case)),
    "scheduler_preemption/TestPreemptionMessage": lambda table, case: list(check_message(table, case)),
    "scheduler_preemption/TestPriorityInfo": lambda table, case: list(check_priorities(table, case)),
    "scheduler_preemption/TestPreemption": lambda table, case: list(check_preemption(table, case)),
    "scheduler_preemption/TestHierarchicalPreemptions": lambda table, case: list(check_preemption(table, case)),
    "scheduler_preemption/TestFairPreemptions": lambda table, case: list(check_fair(table, case)),
    "scheduler_preemption/TestCandidatesOrdering": lambda table, case: list(check_order_of_candidates(table, case)),
    "scheduler_preemption/TestPreemptionWhenWorkloadModifiedConcurrently": lambda table, case: list(
        check_preemption(table, case)
    ),
    "scheduler_preemption_common/TestSatisfiesPreemptionPolicy": lambda table, case: list(check_policy(table, case)),
    "scheduler_preemption_fairsharing/TestMakeClusterQueueOrdering": lambda table, case: list(
        check_order_of_queues(table, case)
    ),
}
