"""volcano/scheduler_plugins_numaaware_*: hints about NUMA nodes, and the CPUs that are taken."""

from collections.abc import Mapping, Sequence
from typing import Any

from gpuconsole.model.pod_template import Container
from gpuconsole.model.resources import CPU
from gpuconsole.model.volcano import CpuPlace, Numatopology
from gpuconsole.scheduling.volcano.plugins.numaaware import TopologyHint, assign_cpus, cpu_hints, merge_hints
from tests.conformance.tables import Case, Check, Table, compare
from tests.conformance.volcano import objects

Document = Mapping[str, Any]


def _hint(document: Document | None) -> TopologyHint:
    listed = document or {}
    return TopologyHint(listed.get("NUMANodeAffinity"), listed.get("Preferred", False))


def _policy(name: str) -> Check:
    def check(table: Table, case: Case) -> Sequence[str]:
        providers = [
            {resource: None if listed is None else [_hint(one) for one in listed] for resource, listed in hints.items()}
            for hints in (one or {} for one in case.input.get("providersHints") or ())
        ]
        return [*compare("best", merge_hints(name, (0, 1), providers)[0], _hint(case.want.get("expect")))]

    return check


def _topology(table: Table) -> Numatopology:
    detail = table.fixtures["pkg:numaInfo"]["CPUDetail"]
    places = {
        int(cpu): CpuPlace(place.get("NUMANodeID", 0), place.get("SocketID", 0), place.get("CoreID", 0))
        for cpu, place in detail.items()
    }
    return Numatopology(name="n", cpus=places)


def _container(case: Case) -> Container:
    document = case.input["container"]
    return objects.pod({"spec": {"containers": [document]}}).template.containers[0]


def _free(case: Case) -> frozenset[int] | None:
    sets = case.input.get("resNumaSets") or {}
    return frozenset(map(int, sets[CPU]["elems"])) if CPU in sets else None


def _hints(table: Table, case: Case) -> Sequence[str]:
    free = _free(case)
    got = None if free is None else cpu_hints(_container(case), _topology(table), free)
    wanted = case.want.get("expect")
    return [*compare("hints", got, None if wanted is None else [_hint(one) for one in wanted])]


def _assigned(table: Table, case: Case) -> Sequence[str]:
    got = assign_cpus(_container(case), _topology(table), _free(case) or frozenset(), _hint(case.input.get("bestHit")))
    wanted = (case.want.get("expect") or {}).get("elems") or ()
    return [*compare("cpus", sorted(got), sorted(map(int, wanted)))]


_P = "volcano/scheduler_plugins_numaaware_"

CHECKS: dict[str, Check] = {
    _P + "policy/Test_best_effort_predicate": _policy("best-effort"),
    _P + "policy/Test_none_predicate": _policy("none"),
    _P + "policy/Test_restricted_predicate": _policy("restricted"),
    _P + "policy/Test_single_numa_node_predicate": _policy("single-numa-node"),
    _P + "provider_cpumanager/Test_GetTopologyHints": _hints,
    _P + "provider_cpumanager/Test_Allocate": _assigned,
}
