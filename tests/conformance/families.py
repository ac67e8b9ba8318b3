"""controller_concurrentadmission: a parent workload and its variants after one look at them."""

from collections.abc import Iterator, Mapping, Sequence

from msgspec.structs import replace

from gpuconsole.model.clock import parse_span
from gpuconsole.model.queues import ClusterQueue, LocalQueue
from gpuconsole.model.workloads import Condition, Workload
from gpuconsole.scheduling.kueue.concurrent_admission import (
    VariantsReconcileResult,
    first_gated_variant,
    is_parent,
    parents_of,
    reconcile_variants,
    same_flavors,
)
from tests.conformance import world
from tests.conformance.cycle import in_every_run
from tests.conformance.events import Seen
from tests.conformance.tables import Case, Check, Document, Table, compare


def check_family(table: Table, case: Case, gates: Mapping[str, bool]) -> Iterator[str]:
    """TestReconcile: all workloads, the events, and when to look again."""
    given, want = case.input, case.want
    things = world.decode_all(value for value in table.fixtures.values() if _is_object(value))
    queues = {thing.name: thing for thing in things if isinstance(thing, ClusterQueue)}
    doors = {thing.key: thing for thing in things if isinstance(thing, LocalQueue)}
    before = {w.key: w for w in map(world.decode_workload, given.get("variantWorkloads") or ())}
    parent = world.decode_workload(given["parentWorkload"]) if given.get("parentWorkload") else None
    outcome = VariantsReconcileResult()
    granular = gates.get("UnadmittedWorkloadsObservability", False)
    if parent is not None and is_parent(parent) and not given.get("req"):
        queue = queues[doors[parent.local_queue].cluster_queue]
        variants = [w for w in before.values() if w.parent == parent.key]
        outcome = reconcile_variants(parent, variants, queue, world.clock(table.fixtures["fakeNow"]), granular=granular)
    after = {key: w for key, w in before.items() if key not in outcome.deleted}
    after.update({w.key: w for w in (*outcome.created, *outcome.changed) if parent is None or w.key != parent.key})
    if want.get("wantParentWorkload") and parent is not None:
        parent = next((w for w in outcome.changed if w.key == parent.key), parent)
        yield from compare("parent", _timeless(parent), _timeless(world.decode_workload(want["wantParentWorkload"])))
    wanted = {w.key: w for w in map(world.decode_workload, want.get("wantVariantWorkloads") or ())}
    found = {key: w for key, w in after.items() if w.parent}
    yield from compare("variants", sorted(found), sorted(wanted))
    for key in found.keys() & wanted.keys():
        yield from compare(key, _timeless(found[key]), _timeless(_as_told(wanted[key], granular)))
    seen = [Seen(e.workload, "Normal", e.reason, e.message) for e in outcome.events]
    yield from compare("events", sorted(seen), sorted(_listed(want.get("wantEvents") or ())))
    again = (want.get("wantResult") or {}).get("RequeueAfter")
    yield from compare("wantResult", outcome.reconcile_after, parse_span(again) if again else None)


def _is_object(value: object) -> bool:
    return isinstance(value, Mapping) and "kind" in value


def _listed(events: Sequence[Document]) -> list[Seen]:
    return [Seen(e["Key"], e["EventType"], e["Reason"], e.get("Message", "")) for e in events]


def _as_told(workload: Workload, granular: bool) -> Workload:
    """The reason that the gate UnadmittedWorkloadsObservability gives a reservation that was taken back."""
    reserved = workload.condition("QuotaReserved")
    if not granular or reserved is None or reserved.status or reserved.reason != "Pending":
        return workload
    return workload.with_condition(replace(reserved, reason="PendingEvaluation"))


def _timeless(workload: Workload) -> Workload:
    """Without the times that are not compared."""
    plain = world.comparable(workload)
    conditions: tuple[Condition, ...] = tuple(replace(condition, since=0) for condition in plain.conditions)
    gates = tuple(replace(gate, since=None if gate.since is None else 0) for gate in plain.preemption_gates)
    return replace(plain, conditions=conditions, preemption_gates=gates, uid="")


def check_change(table: Table, case: Case) -> Iterator[str]:
    """TestClusterQueueFlavorsChanged: does a change of the queue concern the variants in it?"""
    old, new = world.decode(case.input["old"]), world.decode(case.input["new"])
    assert isinstance(old, ClusterQueue)
    assert isinstance(new, ClusterQueue)
    yield from compare("want", not same_flavors(old, new), case.want["want"])


def check_candidate(table: Table, case: Case) -> Iterator[str]:
    """TestFirstCandidateVariant: who is the next that may preempt."""
    variants = [world.decode_workload(case.input["first"]), world.decode_workload(table.fixtures["blocked"])]
    found = first_gated_variant(variants)
    want = world.decode_workload(case.want["want"]) if case.want.get("want") else None
    yield from compare("want", found, want)


def check_parents(table: Table, case: Case) -> Iterator[str]:
    """TestParentsForClusterQueue: whose variants a ClusterQueue concerns."""
    given = case.input
    doors = [thing for thing in world.decode_all(given.get("localQueues")) if isinstance(thing, LocalQueue)]
    workloads = [world.decode_workload(document) for document in given.get("workloads") or ()]
    queue = given["clusterQueue"]
    name = queue if isinstance(queue, str) else queue["metadata"]["name"]
    got = parents_of(name, [(door.key, door.cluster_queue) for door in doors], workloads)
    wanted = [request["NamespacedName"] for request in case.want.get("want") or ()]
    yield from compare("want", sorted(got), sorted(wanted))


CHECKS: dict[str, Check] = {
    "controller_concurrentadmission/TestReconcile": lambda table, case: in_every_run(check_family, table, case),
    "controller_concurrentadmission/TestClusterQueueFlavorsChanged": lambda table, case: list(
        check_change(table, case)
    ),
    "controller_concurrentadmission/TestFirstCandidateVariant": lambda table, case: list(check_candidate(table, case)),
    "controller_concurrentadmission/TestParentsForClusterQueue": lambda table, case: list(check_parents(table, case)),
}
