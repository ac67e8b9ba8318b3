"""controllers_podgroup/…: PodGroups of pods that no Volcano Job made."""

from collections.abc import Iterator, Mapping
from typing import Any

from gpuconsole.model.resources import amount
from gpuconsole.scheduling.volcano.jobs.pod_group import PREFIX, group_of_pod
from tests.conformance.tables import Case, Check, Document, Table, compare
from tests.conformance.volcano import objects


def _owner_uid(pod: Document) -> str:
    """The uid of a pod's controlling owner, or its own."""
    meta = pod["metadata"]
    owners = [owner["uid"] for owner in meta.get("ownerReferences") or () if owner.get("controller")]
    return str(owners[0] if owners else meta.get("uid", ""))


def _group_of(pod: Document, notes: Mapping[str, str]) -> Any:
    return group_of_pod(objects.pod(pod), PREFIX + _owner_uid(pod), notes)


def _compare(got: Any, want: Document) -> Iterator[str]:
    spec = want.get("spec") or {}
    yield from compare("name", got.name, want["metadata"]["name"])
    yield from compare("minMember", got.min_member, spec.get("minMember", 0))
    yield from compare("priority class", got.priority_class, spec.get("priorityClassName", ""))
    needs = {name: amount(name, text) for name, text in (spec.get("minResources") or {}).items()}
    yield from compare("needs", {name: got.min_resources.get(name) for name in needs}, needs)
    yield from compare("topology", got.network_topology, objects.pod_group(want).network_topology)


def check_pods(table: Table, case: Case) -> Iterator[str]:
    """One PodGroup for all pods of an owner."""
    notes = ((case.input.get("rs") or {}).get("metadata") or {}).get("annotations") or {}
    for pod in case.input["pods"]:
        yield from _compare(_group_of(pod, notes), case.want["expectedPodGroup"])


def check_topology(table: Table, case: Case) -> Iterator[str]:
    got = _group_of(case.input["pod"], {}).network_topology
    want = case.want.get("expectedNetworkTopology")
    group = objects.pod_group({"spec": {"networkTopology": want} if want else {}})
    yield from compare("topology", got, group.network_topology)


def _check(function: object) -> Check:
    return lambda table, case: list(function(table, case))  # type: ignore[operator]


CHECKS: dict[str, Check] = {
    "volcano/controllers_podgroup/TestAddPodGroup": _check(check_pods),
    "volcano/controllers_podgroup/TestBuildPodGroupFromPodWithNetworkTopology": _check(check_topology),
}
