"""Lint rules for unusable quota: cohort cycles, unreachable queues, flavors without nodes, quota above capacity."""

from collections.abc import Iterator

from gpuconsole.insight.index.capacity import capacity
from gpuconsole.insight.index.quota_tree import excluded_namespaces
from gpuconsole.insight.linting.facts import Evidence, LintFacts, LintFinding, LintLevel, object_name
from gpuconsole.model.gpus.sharing import replicas
from gpuconsole.model.queues import ClusterQueue, Cohort, ResourceFlavor
from gpuconsole.model.resources import GPU, format_quantity, is_gpu, is_mig


def lint(facts: LintFacts) -> Iterator[LintFinding]:
    """Find unusable quota, by the quota tree and the nodes."""
    if facts.engines.unqueued:
        return
    yield from _cycles(facts)
    yield from _unreachable_queues(facts)
    yield from _pools(facts)
    yield from _nodes(facts)
    yield from _shared(facts)


def _cycles(facts: LintFacts) -> Iterator[LintFinding]:
    """Find cycles of cohorts, each once; cohorts below a cycle are not part of it."""
    cohorts = facts.snapshot.cohorts
    done: set[str] = set()
    for name in sorted(capacity(facts.snapshot).tree.in_cycle):
        trail: list[str] = []
        at = name
        while at not in done and at not in trail:
            trail.append(at)
            at = cohorts[at].parent
        if at in trail:
            cycle = trail[trail.index(at) :]
            yield LintFinding(
                code="cohort-cycle",
                level=LintLevel.ERROR,
                object=f"Cohort/{at}",
                path=("spec", "parentName"),
                problem="the cohort is its own ancestor: no workload in it or below it is admitted",
                evidence={"cycle": " → ".join([*cycle, at])},
                fix="remove parentName from one cohort of the cycle",
            )
        done.update(trail)


def _unreachable_queues(facts: LintFacts) -> Iterator[LintFinding]:
    snapshot = facts.snapshot
    local_queues = {queue.cluster_queue for queue in snapshot.local_queues.all()}
    for queue in _sorted_queues(facts):
        if queue.namespace_selector is None:
            yield _unreachable(
                queue,
                ("spec", "namespaceSelector"),
                "it selects no namespace, so it admits no workloads",
                {"namespaceSelector": "not set"},
                "set namespaceSelector: {} for all namespaces, or select labels of those that may use it",
            )
        elif shut := excluded_namespaces(snapshot, queue):
            yield _unreachable(
                queue,
                ("spec", "namespaceSelector"),
                "it selects none of the namespaces of its LocalQueues, so it admits no workloads",
                {"namespaces": ", ".join(shut)},
                "add the selected labels to these namespaces, or change the selector",
            )
        if not len(snapshot.local_queues) or queue.name in local_queues:
            continue
        kept = {
            pair: quota for pair, quota in queue.quotas().items() if quota.nominal and _kept(queue, quota.lending_limit)
        }
        if kept:
            said = {
                f"{flavor} {resource}": format_quantity(resource, q.nominal) for (flavor, resource), q in kept.items()
            }
            why = "it is in no cohort" if not queue.cohort else "its lendingLimit is 0"
            yield _unreachable(
                queue,
                ("spec", "resourceGroups"),
                f"no LocalQueue references it, and {why}: its quota is unusable",
                said,
                "create a LocalQueue for it, or let it lend to a cohort",
            )


def _kept(queue: ClusterQueue, lending_limit: int | None) -> bool:
    """True if the quota cannot be lent."""
    return not queue.cohort or lending_limit == 0


def _pools(facts: LintFacts) -> Iterator[LintFinding]:
    """Find quotas of cohorts without ClusterQueues."""
    tree = capacity(facts.snapshot).tree
    for name, node in tree.cohorts.items():
        cohort = facts.snapshot.cohorts.get(name)
        if cohort is None or not any(quota.nominal for quota in cohort.quotas().values()):
            continue
        if not list(tree.subtree_queues(node)) and not tree.paths[node]:
            yield _unreachable(
                cohort,
                ("spec", "resourceGroups"),
                "no ClusterQueue is in it or below it: its quota is unusable",
                {"queues": 0},
                "set it as cohortName of a ClusterQueue",
            )


def _nodes(facts: LintFacts) -> Iterator[LintFinding]:
    """Find flavors whose quotas exceed their nodes; only if all nodes are known."""
    snapshot, nodes = facts.snapshot, facts.all_nodes
    if not nodes:
        return
    promised: dict[tuple[str, str], int] = {}
    givers: list[ClusterQueue | Cohort] = [*snapshot.cluster_queues.all(), *snapshot.cohorts.all()]
    for giver in givers:
        for pair, quota in giver.quotas().items():
            promised[pair] = promised.get(pair, 0) + quota.nominal
    for (name, resource), total in sorted(promised.items()):
        flavor: ResourceFlavor | None = snapshot.flavors.get(name)
        if flavor is None or not total or not (is_gpu(resource) or is_mig(resource)):
            continue
        own = [node for node in nodes if flavor.node_labels.items() <= node.labels.items()]
        there = sum(node.allocatable.get(resource, 0) for node in own)
        if there < total:
            yield LintFinding(
                code="quota-beyond-nodes",
                level=LintLevel.WARNING,
                object=object_name(flavor),
                path=("spec", "nodeLabels"),
                problem=f"quotas of {total} {resource} exceed the {there} that its nodes have",
                evidence={"quota": total, "nodes": len(own), resource: there},
                fix="lower the quotas, add nodes, or correct the labels",
            )


def _shared(facts: LintFacts) -> Iterator[LintFinding]:
    """Find time-slicing replicas that a quota counts as GPUs."""
    for queue in _sorted_queues(facts):
        for g, group in enumerate(queue.resource_groups):
            for f, quotas in enumerate(group.flavors):
                flavor = facts.snapshot.flavors.get(quotas.name)
                quota = quotas.resources.get(GPU)
                if flavor is None or quota is None or not quota.nominal:
                    continue
                nodes = [n for n in facts.snapshot.nodes.all() if flavor.node_labels.items() <= n.labels.items()]
                turns = max((replicas(n.labels) for n in nodes if n.allocatable.get(GPU)), default=1)
                if turns > 1:
                    yield LintFinding(
                        code="shared-gpus-as-whole",
                        level=LintLevel.WARNING,
                        object=object_name(queue),
                        path=("spec", "resourceGroups", g, "flavors", f),
                        problem=f"nodes of flavor {flavor.name} offer {turns} time-slicing replicas of each GPU under "
                        f"the GPU's name: its quota counts replicas, not GPUs",
                        evidence={"quota": quota.nominal, "replicas": turns, "GPUs": quota.nominal // turns},
                        fix="set renameByDefault: true and give nvidia.com/gpu.shared its own quota",
                    )


def _unreachable(
    obj: ClusterQueue | Cohort, path: tuple[str, ...], problem: str, evidence: Evidence, fix: str
) -> LintFinding:
    return LintFinding(
        code="unreachable-quota",
        level=LintLevel.WARNING,
        object=object_name(obj),
        path=path,
        problem=problem,
        evidence=evidence,
        fix=fix,
    )


def _sorted_queues(facts: LintFacts) -> list[ClusterQueue]:
    return sorted(facts.snapshot.cluster_queues.all(), key=lambda queue: queue.name)
