"""podset, util_tolerations: what an admission writes into the pods of a job."""

from collections.abc import Iterator

from msgspec.structs import replace

from gpuconsole.model.pod_template import PodSet, PodTemplate
from gpuconsole.model.queues import ResourceFlavor
from gpuconsole.model.workloads import PodSetAssignment, PodSetUpdate
from gpuconsole.scheduling.kueue.config import KueueConfig
from gpuconsole.scheduling.kueue.podset import (
    Additions,
    Conflict,
    apply_additions,
    from_assignment,
    from_update,
    same_toleration,
)
from tests.conformance import world
from tests.conformance.tables import Case, Check, Document, Table, compare


def _additions(info: Document) -> Additions:
    """A PodSetInfo, read as an admission check's update and its scheduling gates."""
    update = {
        "name": "main",
        "labels": info.get("Labels"),
        "annotations": info.get("Annotations"),
        "nodeSelector": info.get("NodeSelector"),
        "tolerations": info.get("Tolerations"),
    }
    gates = tuple(gate["name"] for gate in info.get("SchedulingGates") or ())
    return replace(from_update(_update(update)), scheduling_gates=gates)


def _update(document: Document) -> PodSetUpdate:
    kept = {key: value for key, value in document.items() if value is not None}
    checks = [{"name": "c", "state": "Ready", "podSetUpdates": [kept]}]
    workload = world.decode_workload({"metadata": {"name": "any"}, "status": {"admissionChecks": checks}})
    return workload.checks[0].updates[0]


def _pod_set(document: Document) -> PodSet:
    spec = {"podSets": [{"name": "main", **document}]}
    return world.decode_workload({"metadata": {"name": "any"}, "spec": spec}).pod_sets[0]


def check_assignment(table: Table, case: Case) -> Iterator[str]:
    """TestFromAssignment: labels and tolerations of the flavors, the gate of a topology, the count."""
    given = case.input
    name = given["assignment"].get("name", "main")
    pod_set = _pod_set({**(table.shared.get("podSet") or {}), "name": name, "count": given["defaultCount"]})
    assignment = _assignment(pod_set, given["assignment"])
    flavors = {f.name: f for f in world.decode_all(given.get("flavors")) if isinstance(f, ResourceFlavor)}
    topology = KueueConfig(gates=case.gates).enabled("TopologyAwareScheduling")
    wanted = case.want.get("wantInfo")
    try:
        got = from_assignment(assignment, pod_set, flavors, topology=topology)
    except LookupError as problem:
        yield from compare("wantError", problem.args[0], (case.want.get("wantError") or {}).get("$error"))
        return
    yield from compare("wantError", None, case.want.get("wantError"))
    yield from compare("wantInfo", _sorted(got), _sorted(_additions(wanted or {})))
    yield from compare(
        "Name, Count", (assignment.name, assignment.count), ((wanted or {})["Name"], (wanted or {})["Count"])
    )


def _assignment(pod_set: PodSet, document: Document) -> PodSetAssignment:
    admission = {"clusterQueue": "cq", "podSetAssignments": [document]}
    body = {
        "metadata": {"name": "any"},
        "spec": {"podSets": [{"name": pod_set.name, "count": pod_set.count}]},
        "status": {"admission": admission},
    }
    found = world.decode_workload(body).admission
    assert found is not None
    return found.pod_sets[0]


def _sorted(added: Additions) -> Additions:
    """Tolerations as Kueue's test compares them: in any order."""
    return replace(
        added, tolerations=tuple(sorted(added.tolerations, key=lambda t: (t.key, t.operator, t.value, t.effect)))
    )


def check_merge(table: Table, case: Case) -> Iterator[str]:
    """TestMergeRestore: the template after the merge, and whether stopping the job changes it back."""
    pod_set = _pod_set(case.input["podSet"])
    elastic = KueueConfig(gates=case.gates).enabled("ElasticJobsViaWorkloadSlices")
    try:
        got: PodTemplate | None = apply_additions(
            pod_set.template, _additions(case.input.get("info") or {}), elastic=elastic
        )
    except Conflict:
        got = None
    yield from compare("wantError", got is None, case.want["wantError"])
    if got is not None and not case.want["wantError"]:
        yield from compare("wantPodSet", got, _pod_set(case.want["wantPodSet"]).template)
        yield from compare("wantRestoreChanges", got != pod_set.template, case.want["wantRestoreChanges"])
        yield from compare("restored", pod_set, _pod_set(case.input["podSet"]))


def check_label(table: Table, case: Case) -> Iterator[str]:
    """TestAddOrUpdateLabel: one label is added or replaced."""
    got = _additions(case.input.get("info") or {}).with_label(case.input["k"], case.input["v"])
    yield from compare("wantInfo", got, _additions(case.want["wantInfo"]))


def check_toleration(table: Table, case: Case) -> Iterator[str]:
    """TestEqual: do two tolerations tolerate the same?"""
    first, second = (
        from_update(_update({"name": "p", "tolerations": [case.input[n]]})).tolerations[0] for n in ("a", "b")
    )
    yield from compare("want", same_toleration(first, second), case.want["wantEq"])


CHECKS: dict[str, Check] = {
    "podset/TestFromAssignment": lambda table, case: list(check_assignment(table, case)),
    "podset/TestMergeRestore": lambda table, case: list(check_merge(table, case)),
    "podset/TestAddOrUpdateLabel": lambda table, case: list(check_label(table, case)),
    "util_tolerations/TestEqual": lambda table, case: list(check_toleration(table, case)),
}
