"""scheduler_flavorassigner: which flavors a workload is given, what was tried, and what it would use."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gpuconsole.model.queues import Cohort, FlavorFungibility, Fungibility, FungibilityPreference
from gpuconsole.scheduling.kueue import assignment as flavor_assignment_mode
from gpuconsole.scheduling.kueue.assignment import (
    Assignment,
    FlavorAssignmentMode,
    FlavorAttempt,
    ModeAndHeight,
    PodSetResult,
    combine_attempts,
)
from gpuconsole.scheduling.kueue.cluster_queue_status import ClusterQueueConfig
from gpuconsole.scheduling.kueue.config import KueueConfig
from gpuconsole.scheduling.kueue.context import Context
from gpuconsole.scheduling.kueue.flavor_assigner import FlavorAssigner, PreemptionOracle
from gpuconsole.scheduling.kueue.nomination import largest_fitting_counts
from gpuconsole.scheduling.kueue.pod_resources import WorkloadRequest
from gpuconsole.scheduling.kueue.slices import ReplacedPodSet
from tests.conformance import world
from tests.conformance.cycle import in_every_run
from tests.conformance.tables import Case, Check, Document, Table, compare

NAMES = {FlavorAssignmentMode.NO_FIT: "NoFit", FlavorAssignmentMode.PREEMPT: "Preempt", FlavorAssignmentMode.FIT: "Fit"}
_POSSIBLE = {
    "NoCandidates": FlavorAssignmentMode.NO_CANDIDATES,
    "Preempt": FlavorAssignmentMode.PREEMPT,
    "Reclaim": FlavorAssignmentMode.RECLAIM,
}


def stub(simulated: Mapping[str, Document]) -> PreemptionOracle:
    """The tables' preemption oracle: what it says of `flavor/resource`, or Preempt without borrowing."""

    def oracle(
        context: Context, rules: ClusterQueueConfig, request: WorkloadRequest, column: int, amount: int
    ) -> ModeAndHeight:
        key = "/".join(context.setup.tree.columns[column])
        if key not in simulated:
            return FlavorAssignmentMode.PREEMPT, 0
        told = simulated[key]
        possible = _POSSIBLE[told.get("preemptionPossiblity") or "NoCandidates"]
        return possible, told.get("borrowingAfterSimulation", 0)

    return oracle


def check_assignment(table: Table, case: Case, gates: Mapping[str, bool]) -> Iterator[str]:
    """TestAssignFlavors, TestDeletedFlavors: the whole assignment."""
    given = case.input
    flavors = table.fixtures.get("resourceFlavors") or table.shared["flavorMap"]
    kept = [flavor for name, flavor in flavors.items() if name != "deleted-flavor"]
    queues = [queue for queue in (given["clusterQueue"], given.get("secondaryClusterQueue")) if queue]
    usage = {
        given["clusterQueue"]["metadata"]["name"]: given.get("clusterQueueUsage") or {},
        **({queues[1]["metadata"]["name"]: given.get("secondaryClusterQueueUsage") or {}} if len(queues) > 1 else {}),
    }
    config = KueueConfig(fair_sharing=bool(given.get("enableFairSharing")), gates=gates)
    assignment = assign(
        config,
        [*kept, *(given.get("topologies") or ())],
        queues,
        usage,
        {"spec": {"podSets": given["wlPods"]}, "status": {"reclaimablePods": given.get("wlReclaimablePods") or []}},
        given.get("simulationResult") or {},
        given_to(given.get("preemptWorkloadSlice")),
    )
    want = case.want["wantAssignment"]
    yield from compare("wantRepMode", NAMES[assignment[0].mode], case.want["wantRepMode"])
    yield from compare("Borrowing", assignment[0].borrowing_height, want.get("Borrowing", 0))
    yield from compare("Usage", _usage(*assignment), (want.get("Usage") or {}).get("Quota") or {})
    yield from compare(
        "pod sets", [r.pod_set.name for r in assignment[0].pod_sets], [p["Name"] for p in want.get("PodSets") or ()]
    )
    for result, listed in zip(assignment[0].pod_sets, want.get("PodSets") or (), strict=False):
        yield from _pod_set(result, listed, granular=config.has_granular_reasons)
    if config.has_granular_reasons:
        groups = assignment[1].setup.queues[queues[0]["metadata"]["name"]].groups
        yield from compare("NoFitReason", assignment[0].granular_reason(groups).value, want.get("NoFitReason", ""))


def assign(
    config: KueueConfig,
    things: list[Document],
    queues: list[Document],
    usage: Mapping[str, Mapping[str, int]],
    workload: Document,
    simulated: Mapping[str, Document],
    replaced: Sequence[ReplacedPodSet] = (),
) -> tuple[Assignment, Context]:
    """Flavors for a workload in the first of these ClusterQueues, which use so much."""
    objects = world.decode_all([*things, *queues])
    known = {thing.name for thing in objects if isinstance(thing, Cohort)}
    named = {queue["spec"].get("cohortName", "") for queue in queues} - {"", *known}
    objects += [Cohort(name=name) for name in sorted(named)]
    state = world.state(config, objects, 0)
    context = state.context()
    count_usage(context, usage)
    name = queues[0]["metadata"]["name"]
    request = WorkloadRequest(world.decode_workload({"metadata": {"name": "any"}, **workload}), 0, name, config)
    assigner = FlavorAssigner(context, context.setup.queues[name], request, oracle=stub(simulated), replaced=replaced)
    return assigner.assign(), context


def given_to(slice: Document | None) -> tuple[ReplacedPodSet, ...]:
    """What an old slice has, from what Kueue knows of it."""
    return tuple(
        ReplacedPodSet(part["Name"], part.get("Count", 0), part.get("Flavors") or {}, part.get("Requests") or {})
        for part in (slice or {}).get("TotalRequests") or ()
    )


def count_usage(context: Context, usage: Mapping[str, Mapping[str, int]]) -> None:
    """Count what these ClusterQueues use, by `flavor/resource`."""
    tree = context.setup.tree
    for name, amounts in usage.items():
        uses = [(tree.numbers[_column(key)], amount) for key, amount in amounts.items()]
        context.snapshot.usage.add(tree.queues[name], uses)


def _column(key: str) -> tuple[str, str]:
    flavor, _, resource = key.partition("/")
    return flavor, resource


def _usage(assignment: Assignment, context: Context) -> dict[str, int]:
    columns = context.setup.tree.columns
    return {"/".join(columns[column]): amount for column, amount in assignment.usage.items()}


def _pod_set(got: PodSetResult, want: Document, *, granular: bool) -> Iterator[str]:
    name = want["Name"]
    chosen = {
        resource: {"Name": choice.flavor, "Mode": NAMES[choice.mode], "TriedFlavorIdx": choice.tried}
        for resource, choice in got.choices.items()
    }
    listed = {
        resource: {"Mode": "NoFit", "TriedFlavorIdx": 0, **flavor}
        for resource, flavor in (want.get("Flavors") or {}).items()
    }
    yield from compare(f"flavors of {name}", chosen, listed)
    yield from compare(f"requests of {name}", dict(got.requests), world.amounts(want.get("Requests") or {}))
    yield from compare(f"count of {name}", got.count, want.get("Count", 0))
    status = want.get("Status") or {}
    error = (status.get("err") or {}).get("$error", "")
    yield from compare(f"error of {name}", got.failure, error)
    if not error:
        yield from compare(f"reasons of {name}", sorted(set(got.reasons)), sorted(set(status.get("reasons") or ())))
    if want.get("FlavorAssignmentAttempts"):
        tried = got.flavor_attempts() if granular else combine_attempts(got.searches)
        made = {attempt.flavor: _attempt(attempt, granular) for attempt in tried}
        yield from _attempts(name, made, {a["Flavor"]: _listed(a, granular) for a in want["FlavorAssignmentAttempts"]})


def _attempt(attempt: FlavorAttempt, granular: bool) -> dict[str, Any]:
    possible = {mode: name for name, mode in _POSSIBLE.items()}
    return {
        "Mode": NAMES[attempt.mode],
        "PreemptionPossibility": possible[attempt.possibility] if attempt.possibility is not None else None,
        "Borrow": attempt.height,
        "Reasons": list(attempt.reasons),
        "NoFitReason": attempt.granular_reason.value if granular else "",
    }


def _listed(attempt: Document, granular: bool) -> dict[str, Any]:
    return {
        "Mode": attempt.get("Mode", "NoFit"),
        "PreemptionPossibility": attempt.get("PreemptionPossibility"),
        "Borrow": attempt.get("Borrow", 0),
        "Reasons": attempt.get("Reasons") or [],
        "NoFitReason": attempt.get("NoFitReason", "") if granular else "",
    }


def _attempts(name: str, made: Mapping[str, Document], want: Mapping[str, Document]) -> Iterator[str]:
    """Where some flavor fitted, those that were tried count; otherwise all that are expected do."""
    fitted = any(attempt["Mode"] == "Fit" for attempt in made.values())
    for flavor in made if fitted else want:
        mine, theirs = made.get(flavor), want.get(flavor)
        if mine is not None and theirs is not None and mine["Mode"] == "Fit" and _passed_over(theirs):
            continue
        yield from compare(f"attempt of {name} at {flavor}", mine, theirs)


def _passed_over(listed: Document) -> bool:
    return listed["Mode"] == "NoFit" and all("does not provide resource" in reason for reason in listed["Reasons"])


def check_choice(table: Table, case: Case) -> Iterator[str]:
    """TestReclaimBeforePriorityPreemption, TestHierarchical: the flavor that is chosen, and its mode."""
    given = case.input
    variables = {**table.shared, **case.variables}
    own, other = variables["testCq"], variables["otherCq"]
    if given.get("flavorFungibility"):
        own = {**own, "spec": {**own["spec"], "flavorFungibility": given["flavorFungibility"]}}
    assignment, _ = assign(
        KueueConfig(gates=case.gates),
        [*variables["resourceFlavors"].values(), *(variables.get("cohorts") or ())],
        [own, other],
        {
            own["metadata"]["name"]: given.get("testClusterQueueUsage") or {},
            other["metadata"]["name"]: given.get("otherClusterQueueUsage") or {},
        },
        {"spec": {"podSets": [given["workloadRequests"]["PodSet"]]}},
        given.get("simulationResult") or {},
    )
    yield from compare("wantMode", NAMES[assignment.mode], case.want["wantMode"])
    got = {resource: choice.flavor for resource, choice in assignment.pod_sets[0].choices.items()}
    yield from compare("wantAssigment", got, case.want["wantAssigment"])


def check_preference(table: Table, case: Case) -> Iterator[str]:
    """TestIsPreferred: which of two outcomes a ClusterQueue likes better."""
    given = case.input
    config = given.get("config") or {}
    preference = config.get("preference")
    fungibility = FlavorFungibility(
        Fungibility(config.get("whenCanBorrow") or "MayStopSearch"),
        Fungibility(config.get("whenCanPreempt") or "TryNextFlavor"),
        FungibilityPreference(preference) if preference else None,
    )
    a, b = (_granular(given.get(side) or {}) for side in ("a", "b"))
    yield from compare(
        "wantPreferred", flavor_assignment_mode.is_preferred(a, b, fungibility), case.want["wantPreferred"]
    )


def check_search(table: Table, case: Case) -> Iterator[str]:
    """TestSearch: the largest sizes of the pod sets of which not more than a limit are wanted together."""
    limit = case.input["countLimit"]
    listed = {"metadata": {"name": "any"}, "spec": {"podSets": case.input.get("podSets") or []}}
    pod_sets = world.decode_workload(listed).pod_sets
    found = largest_fitting_counts(pod_sets, lambda counts: sum(counts) if sum(counts) <= limit else None)
    yield from compare("wantFound", found is not None, case.want["wantFound"])
    yield from compare("wantCount", found or 0, case.want["wantCount"])


def _granular(mode: Document) -> ModeAndHeight:
    return FlavorAssignmentMode(mode.get("preemptionMode", 0)), mode.get("borrowingLevel", 0)


CHECKS: dict[str, Check] = {
    "scheduler_flavorassigner/TestAssignFlavors": lambda table, case: in_every_run(check_assignment, table, case),
    "scheduler_flavorassigner/TestDeletedFlavors": lambda table, case: in_every_run(check_assignment, table, case),
    "scheduler_flavorassigner/TestHierarchical": lambda table, case: list(check_choice(table, case)),
    "scheduler_flavorassigner/TestReclaimBeforePriorityPreemption": lambda table, case: list(check_choice(table, case)),
    "scheduler_flavorassigner/TestSearch": lambda table, case: list(check_search(table, case)),
    "scheduler_flavorassigner/TestIsPreferred": lambda table, case: list(check_preference(table, case)),
}
