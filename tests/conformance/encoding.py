"""util_tas/Test…: topology assignments in the API's form, domains and nodes named by their ids."""

import json
from collections.abc import Iterator, Sequence
from random import Random
from typing import Any

from gpuconsole.model.labels import HOSTNAME
from gpuconsole.model.workloads import (
    PodSetAssignment,
    TopologyDomain,
    by_prefix_runs,
    chunks,
    encode,
    prefix_keys,
    runs,
)
from gpuconsole.scheduling.kueue.conditions import is_assigned_to_node, needs_second_pass, node_of, used_nodes
from gpuconsole.scheduling.kueue.config import KueueConfig
from gpuconsole.scheduling.kueue.topology.domains import belongs_to
from tests.conformance import world
from tests.conformance.tables import Case, Check, Document, NotModelled, Table, compare

_GATE = "TASAssignmentsEncodingByHostnamePrefix"


def _internal(document: Document) -> tuple[list[str], list[TopologyDomain]]:
    domains = [TopologyDomain(tuple(d["Values"]), d.get("Count", 0)) for d in document.get("Domains") or ()]
    return list(document.get("Levels") or ()), domains


def _decoded(document: Document) -> PodSetAssignment:
    listed = {"name": "main", "topologyAssignment": document}
    return world.admission({"clusterQueue": "any", "podSetAssignments": [listed]}).pod_sets[0]


def _plain(document: Document) -> dict[str, Any]:
    """Without our addition, and with an empty list where there is none."""
    kept = {name: value for name, value in document.items() if name != "$domains"}
    return {"slices": [], **kept}


def check_encoding(table: Table, case: Case) -> Iterator[str]:
    levels, domains = _internal(case.input["internal"])
    got = encode(levels, domains, by_prefix=KueueConfig(gates=case.gates).enabled(_GATE))
    yield from compare("encoded", got, _plain(case.input["v1beta2"]))


def check_decoding(table: Table, case: Case) -> Iterator[str]:
    levels, domains = _internal(case.input["internal"])
    decoded = _decoded(case.input["v1beta2"])
    yield from compare("levels", list(decoded.levels), levels)
    yield from compare("domains", list(decoded.topology), domains)


def check_counts(table: Table, case: Case) -> Iterator[str]:
    topology = _decoded(case.input["v1beta2"]).topology
    yield from compare("pod counts", [d.count for d in topology], case.input.get("podCounts") or [])
    yield from compare("domains", len(topology), case.input["totalDomainCount"])


def check_runs(table: Table, case: Case) -> Iterator[str]:
    levels, domains = _internal(case.input["internal"])
    got = {"levels": levels, "slices": list(by_prefix_runs(levels, domains))}
    yield from compare("encoded", got, _plain(case.want["want"]))


def check_run_lengths(table: Table, case: Case) -> Iterator[str]:
    _, domains = _internal({"Domains": case.input.get("domains")})
    got = [len(run) for run in runs(domains, case.input.get("prefixKeys") or ())]
    yield from compare("lengths of runs", got, case.want.get("want") or [])


def check_keys(table: Table, case: Case) -> Iterator[str]:
    _, domains = _internal({"Domains": case.input.get("domains")})
    yield from compare("keys", prefix_keys([d.values[-1] for d in domains]), case.want.get("want") or [])


def check_chunks(table: Table, case: Case) -> Iterator[str]:
    yield from compare("chunks", chunks(case.input["length"], case.input["chunkSize"]), case.want["want"])


def check_fallback(table: Table, case: Case) -> Iterator[str]:
    """Whether the encoding that splits by prefix is the one that is taken."""
    levels, domains = _internal(case.variables["internal"])
    got = encode(levels, domains, by_prefix=KueueConfig(gates=case.gates).enabled(_GATE))
    split = {"levels": levels, "slices": list(by_prefix_runs(levels, domains))}
    yield from compare("split by prefix", got == split, case.want["wantHostnamePrefixEncoding"])


def check_on_node(table: Table, case: Case) -> Iterator[str]:
    given = case.input
    if given.get("psa") is not None:
        listed: Sequence[Document] = [given["psa"]]
    else:
        listed = (given.get("admission") or {}).get("podSetAssignments") or ()
    admission = world.admission({"clusterQueue": "any", "podSetAssignments": list(listed)})
    got = any(is_assigned_to_node(assignment, given["nodeName"]) for assignment in admission.pod_sets)
    yield from compare("on the node", got, case.want["want"])


_BUDGET = 1_500_000
"""Bytes of one assignment, as the API server would store it."""


def check_size(table: Table, case: Case) -> Iterator[str]:
    """Single pods on so many nodes with such names stay within what the API takes."""
    given = case.input
    names = _names(given["naming"], given["targetNodeCount"])
    domains = [TopologyDomain((name,), 1) for name in (sorted(names) if given["sortNodeNames"] else names)]
    got = encode([HOSTNAME], domains)
    counts = [piece["domainCount"] for piece in got["slices"]]
    yield from compare("too many slices", len(counts) > 1_000, False)
    yield from compare("too long a slice", max(counts) > 100_000, False)
    yield from compare("domains", sum(counts), len(domains))
    yield from compare("too large", len(json.dumps(got, separators=(",", ":"))) > _BUDGET, False)


def _names(naming: Document, count: int) -> list[str]:
    random, fixed = Random(0), "a" * naming.get("fixedPrefixAndSuffixLength", 0)

    def ids(count: int, length: int) -> list[str]:
        found: dict[str, None] = {}
        while len(found) < count:
            found[f"{random.getrandbits(4 * length):0{length}x}"] = None
        return list(found)

    match str(naming["$type"]).rpartition(".")[2]:
        case "poolAndNodeBasedNaming":
            nodes, pools = ids(count, naming["nodeIDLength"]), ids(naming["pools"], naming["poolIDLength"])
            return [f"{fixed}-{pools[n % len(pools)]}-{node}-{fixed}" for n, node in enumerate(nodes)]
        case "regionAndIPBasedNaming":
            regions = ids(naming["regions"], naming["regionIDLength"])
            ips = [f"100.{100 + n // 65536}.{n % 65536 // 256}.{n % 256}" for n in range(count)]
            return [f"{fixed}-{regions[n % len(regions)]}-{ip}-{fixed}" for n, ip in enumerate(ips)]
        case "nodeBasedNaming":
            return [f"{fixed}-{node}-{fixed}" for node in ids(count, naming["nodeIDLength"])]
        case "gkeNodePoolBasedNaming":
            pools = naming["pools"]
            return [f"gke-cluster-pool-{n % pools:04d}-{n % pools:08x}-{n // pools:04x}" for n in range(count)]
        case other:
            raise NotModelled(f"names by {other}")


def check_belongs(table: Table, case: Case) -> Iterator[str]:
    values, above = (tuple(filter(None, case.input[name].split(","))) for name in ("domainID", "targetDomain"))
    yield from compare("belongs to it", belongs_to(values, above), case.want["want"])


def check_node(table: Table, case: Case) -> Iterator[str]:
    node = node_of(case.input.get("levels") or (), (case.input["domainID"],))
    yield from compare("node", node or "", case.want["wantNodeName"])
    yield from compare("is a node", node is not None, case.want["wantOK"])


def check_second_pass(table: Table, case: Case) -> Iterator[str]:
    yield from compare("needs it", needs_second_pass(world.decode_workload(case.input["wl"])), case.want["want"])


def check_used_nodes(table: Table, case: Case) -> Iterator[str]:
    nodes = sorted(used_nodes(world.decode_workload({"metadata": {"name": "any"}, **case.input["wl"]})))
    yield from compare("nodes", nodes, sorted(case.want.get("want") or ()))


def _check(function: object) -> Check:
    return lambda table, case: list(function(table, case))  # type: ignore[operator]


CHECKS: dict[str, Check] = {
    "util_tas/TestV1Beta2FromInternal": _check(check_encoding),
    "util_tas/TestV1Beta2FromInternal_hostnamePrefixFeatureGateAndFallback": _check(check_fallback),
    "util_tas/TestInternalFromV1Beta2": _check(check_decoding),
    "util_tas/TestInternalSeqFromV1Beta2": _check(check_decoding),
    "util_tas/TestPodCounts": _check(check_counts),
    "util_tas/TestTotalDomainCount": _check(check_counts),
    "util_tas/TestCompactTopologyAssignmentEncodingWithHostnamePrefixRuns": _check(check_runs),
    "util_tas/TestCompactDomainRuns": _check(check_run_lengths),
    "util_tas/TestReusableHostnamePrefixKeys": _check(check_keys),
    "util_tas/TestChunkCount": _check(check_chunks),
    "util_tas/TestByteSizeLimit": _check(check_size),
    "util_tas/TestBelongsTo": _check(check_belongs),
    "util_tas/TestNodeNameFromDomainID": _check(check_node),
    "workload/TestNeedsSecondPass": _check(check_second_pass),
    "workload/TestUsedNodes": _check(check_used_nodes),
    "util_tas/TestHasNodeInPodSetAssignment": _check(check_on_node),
    "util_tas/TestHasTASAssignmentOnNode": _check(check_on_node),
}
