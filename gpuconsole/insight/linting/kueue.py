"""Lint rules for Kueue's quota and for work that can never run.

Quota is unusable in cohort cycles, unreachable queues and flavors without nodes, or above the capacity of the nodes.
Work may exceed every node or the maximum capacity of its queue, select node labels that no flavor offers (Kueue ignores
them, and the pods stay unschedulable), or need nodes that no NodePool of Karpenter can provision.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from gpuconsole.insight.index.capacity import capacity
from gpuconsole.insight.index.quota_tree import excluded_namespaces
from gpuconsole.insight.linting.facts import Evidence, LintFacts, LintFinding, LintLevel, Work, object_name
from gpuconsole.insight.pending.pending import undivided
from gpuconsole.insight.pending.reasons import PendingReason
from gpuconsole.insight.pending.shortage import show
from gpuconsole.insight.unblock.admission_trial import EmptyCluster
from gpuconsole.model.cluster import Node, Pod
from gpuconsole.model.gpus.sharing import replicas
from gpuconsole.model.job import Job
from gpuconsole.model.labels import HOSTNAME, Requirement
from gpuconsole.model.pod_template import PodSet, PodTemplate
from gpuconsole.model.queues import ClusterQueue, Cohort, ResourceFlavor
from gpuconsole.model.resources import GPU, PODS, Resources, format_quantity, is_gpu, is_mig
from gpuconsole.model.volcano import VolcanoQueue
from gpuconsole.scheduling.kube.filters import node_refusal
from gpuconsole.scheduling.kube.pod_classes import PodClass, PodClasses
from gpuconsole.scheduling.kueue.config import KueueConfig, apply_transformations, without_excluded
from gpuconsole.sim.autoscaling.provisioning import NodeFit, Pools, offerings_of, plan_nodes


def lint_quotas(facts: LintFacts) -> Iterator[LintFinding]:
    """Find unusable quota, by the quota tree and the nodes."""
    if facts.engines.unqueued:
        return
    yield from _cycles(facts)
    yield from _unreachable_queues(facts)
    yield from _pools(facts)
    yield from _quota_above_nodes(facts)
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


def _quota_above_nodes(facts: LintFacts) -> Iterator[LintFinding]:
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


ON_EVERY_NODE = (
    HOSTNAME,
    *("kubernetes.io/arch", "kubernetes.io/os", "beta.kubernetes.io/arch", "beta.kubernetes.io/os"),
    *("topology.kubernetes.io/region", "topology.kubernetes.io/zone", "node.kubernetes.io/instance-type"),
    *("failure-domain.beta.kubernetes.io/region", "failure-domain.beta.kubernetes.io/zone"),
    "beta.kubernetes.io/instance-type",
)
"""Labels that kubelets and clouds give nodes (kubernetes.io/docs/reference/labels-annotations-taints)."""


def unoffered(facts: LintFacts, work: Work, queue: ClusterQueue) -> Iterator[LintFinding]:
    """Find node labels that pods select and that neither a flavor of their queue nor a known Node has.

    Kueue compares only keys that are among the flavors' nodeLabels (flavorassigner flavorSelector), and admits the
    work anyway. A flavor without nodeLabels may represent any node.
    """
    if facts.all_nodes:
        return
    for pod_set in work.pod_sets:
        flavors = _flavors(facts, queue, pod_set.template.requests)
        known = {*ON_EVERY_NODE, *(level for flavor in flavors for level in _levels(facts, flavor))}
        missing = [] if not any(f.node_labels for f in flavors) else _missing(pod_set.template, flavors, known)
        if missing:
            labels = " and ".join(missing)
            yield LintFinding(
                code="selector-without-flavor",
                level=LintLevel.WARNING,
                object=work.object,
                path=work.template_path,
                problem=f"no flavor of ClusterQueue {queue.name} offers nodes with {labels}: Kueue admits"
                f" the pods of {pod_set.name} anyway, and they stay unschedulable without such a node",
                evidence={"flavors": ", ".join(_shown(flavor) for flavor in flavors)},
                fix="correct nodeSelector or node affinity, or add the label to the nodeLabels of a flavor",
            )


def _flavors(facts: LintFacts, queue: ClusterQueue, requests: Mapping[str, int]) -> list[ResourceFlavor]:
    """Return the flavors that pods with these requests may be assigned."""
    groups = [group for group in queue.resource_groups if not requests.keys().isdisjoint(group.covered_resources)]
    names = dict.fromkeys(flavor.name for group in groups for flavor in group.flavors)
    found = (facts.snapshot.flavors.get(name) for name in names)
    return [flavor for flavor in found if flavor is not None]


def _levels(facts: LintFacts, flavor: ResourceFlavor) -> Sequence[str]:
    topology = facts.snapshot.topologies.get(flavor.topology) if flavor.topology else None
    return () if topology is None else topology.levels


def _missing(template: PodTemplate, flavors: Sequence[ResourceFlavor], known: set[str]) -> list[str]:
    """Return selected labels that no flavor has: the nodeSelector's, and the first affinity term's if none matches."""

    def offers(requirement: Requirement) -> bool:
        return requirement.key in known or any(requirement.matches(flavor.node_labels) for flavor in flavors)

    selected = (Requirement(key, "In", (value,)) for key, value in sorted(template.node_selector.items()))
    missing = [_text(requirement) for requirement in selected if not offers(requirement)]
    terms = [[_text(one) for one in term.expressions if not offers(one)] for term in template.affinity or ()]
    return [*missing, *(terms[0] if terms and all(terms) else ())]


def _text(requirement: Requirement) -> str:
    values = requirement.values
    match requirement.operator:
        case "In" if len(values) == 1:
            return f"{requirement.key}={values[0]}"
        case "Exists" | "DoesNotExist":
            return f"{requirement.key} {requirement.operator}"
    return f"{requirement.key} {requirement.operator} ({', '.join(values)})"


def _shown(flavor: ResourceFlavor) -> str:
    labels = ", ".join(f"{key}={value}" for key, value in sorted(flavor.node_labels.items()))
    return f"{flavor.name} ({labels or 'no nodeLabels'})"


def lint_fitting(facts: LintFacts) -> Iterator[LintFinding]:
    """Find work that can never run."""
    kueue = facts.engines.kueue or KueueConfig()
    emptied = EmptyCluster(facts.snapshot, kueue, facts.engines.capacity, (work.namespace for work in facts.work))
    for work in facts.work:
        queue = facts.snapshot.cluster_queues.get(facts.cluster_queue(work))
        if queue is not None:
            yield from _quota(facts, emptied, work, queue)
            yield from _undivided(work)
        else:
            yield from _capability(facts, work)
    yield from _nodes(facts)
    yield from _slices(facts)


# Quota


def _quota(facts: LintFacts, emptied: EmptyCluster, work: Work, queue: ClusterQueue) -> Iterator[LintFinding]:
    uncovered = list(_uncovered_resources(facts, work, queue))
    yield from (_uncovered(work, queue, resource) for resource in uncovered)
    refusal = None if uncovered else emptied.refusal(work.namespace, work.queue, work.pod_sets)
    if refusal is not None:
        yield _refused(work, queue, *refusal)
    elif not uncovered:
        yield from unoffered(facts, work, queue)


def _uncovered_resources(facts: LintFacts, work: Work, queue: ClusterQueue) -> Iterator[str]:
    config = facts.engines.kueue or KueueConfig()
    covered = {resource for group in queue.resource_groups for resource in group.covered_resources}
    for pod_set in work.pod_sets:
        one = apply_transformations(
            without_excluded(pod_set.template.requests, config.exclude_resource_prefixes), config.transformations
        )
        yield from (name for name, amount in one.items() if amount and name not in covered and name != PODS)


_REFUSED = {
    PendingReason.FLAVOR_MISMATCH: (
        "never-fits-flavor",
        "its pods match no flavor of ClusterQueue {}",
        "correct nodeSelector, affinity and tolerations, or add a flavor that matches them",
    ),
    PendingReason.TOPOLOGY: (
        "never-fits-topology",
        "its pods exceed every topology domain of the required level in ClusterQueue {}, even if all were empty",
        "request fewer or smaller pods, require a higher level, or use a preferred level instead",
    ),
}
_TOO_MUCH = (
    "never-fits-quota",
    "it requests more than the maximum quota of ClusterQueue {}, borrowing included",
    "request less, raise the nominal quota or the borrowing limit, or use a larger queue",
)


def _refused(work: Work, queue: ClusterQueue, code: PendingReason, message: str) -> LintFinding:
    name, problem, fix = _REFUSED.get(code, _TOO_MUCH)
    return LintFinding(
        code=name,
        level=LintLevel.ERROR,
        object=work.object,
        path=work.template_path,
        problem=problem.format(queue.name),
        evidence={"on an empty cluster": message},
        fix=fix,
    )


def _undivided(work: Work) -> Iterator[LintFinding]:
    """Find pod counts that are not a multiple of the slice size."""
    for pod_set in work.pod_sets:
        odd = undivided(pod_set, pod_set.count)
        if odd is not None:
            yield LintFinding(
                code="slice-does-not-divide",
                level=LintLevel.ERROR,
                object=work.object,
                path=work.template_path,
                problem=f"slices of {odd.size} do not divide the {pod_set.count} pods of {pod_set.name}:"
                f" {odd.left_over} of them are never scheduled",
                evidence={"pods": pod_set.count, "slice size": odd.size},
                fix=f"{odd.helps}, or choose a slice size that divides {pod_set.count}",
            )


def _uncovered(work: Work, queue: ClusterQueue, resource: str) -> LintFinding:
    covered = ", ".join(name for group in queue.resource_groups for name in group.covered_resources)
    mig = is_mig(resource)
    return LintFinding(
        code="mig-profile-not-covered" if mig else "resource-not-covered",
        level=LintLevel.ERROR,
        object=work.object,
        path=work.template_path,
        problem=f"ClusterQueue {queue.name} has no quota of {resource}: Kueue never admits it",
        evidence={"coveredResources": covered or "none"},
        fix="add the resource to coveredResources with a quota"
        + (", or transform MIG profiles to a common unit (resources.transformations)" if mig else ""),
    )


def _slices(facts: LintFacts) -> Iterator[LintFinding]:
    """Find MIG profiles that nodes offer and that no ClusterQueue has a quota of."""
    queues = list(facts.snapshot.cluster_queues.all())
    if not queues or facts.engines.unqueued:
        return
    config = facts.engines.kueue or KueueConfig()
    covered = {name for queue in queues for group in queue.resource_groups for name in group.covered_resources}
    missing: dict[str, list[str]] = {}
    for node in sorted(facts.snapshot.nodes.all(), key=lambda node: node.name):
        for resource, amount in node.allocatable.items():
            counted = apply_transformations(
                without_excluded({resource: amount}, config.exclude_resource_prefixes), config.transformations
            )
            if amount and is_mig(resource) and counted and covered.isdisjoint(counted):
                missing.setdefault(resource, []).append(node.name)
    for resource, nodes in sorted(missing.items()):
        yield LintFinding(
            code="mig-profile-not-covered",
            level=LintLevel.WARNING,
            object=f"Node/{nodes[0]}",
            path=("status", "allocatable", resource),
            problem=f"no ClusterQueue has a quota of {resource}: workloads that Kueue admits cannot use it",
            evidence={"nodes": len(nodes)},
            fix="add it to coveredResources of a ClusterQueue, or transform MIG profiles to a common unit",
        )


def _capability(facts: LintFacts, work: Work) -> Iterator[LintFinding]:
    """Find gangs that exceed the capability of their Volcano queue."""
    spec = work.obj.volcano if isinstance(work.obj, Job) else None
    queue: VolcanoQueue | None = facts.snapshot.volcano_queues.get(spec.queue) if spec is not None else None
    if queue is None or spec is None:
        return
    total: dict[str, int] = {}
    for pod_set, task in zip(work.pod_sets, spec.tasks, strict=False):
        count = task.min_available if task.min_available is not None else pod_set.count
        for name, amount in pod_set.template.requests.items():
            total[name] = total.get(name, 0) + amount * count
    pods = sum(pod_set.count for pod_set in work.pod_sets)
    if spec.min_available < pods and len(work.pod_sets) == 1:
        total = {name: amount // pods * spec.min_available for name, amount in total.items()}
    elif spec.min_available < pods:
        return
    over = {
        n: f"{show(n, total[n])} of {format_quantity(n, limit)}"
        for n, limit in queue.capability.items()
        if total.get(n, 0) > limit
    }
    if over:
        yield LintFinding(
            code="never-fits-quota",
            level=LintLevel.ERROR,
            object=work.object,
            path=("spec", "queue"),
            problem=f"its gang requests more than the capability of queue {queue.name}: it is never enqueued",
            evidence=over,
            fix="request less, lower minAvailable, or raise the queue's capability",
        )


# Nodes


def _nodes(facts: LintFacts) -> Iterator[LintFinding]:
    """Find pods that fit on no node, and gangs that do not fit on all nodes together."""
    nodes = facts.all_nodes
    if not nodes:
        return
    shapes = PodClasses()
    fitting: dict[tuple[PodClass, int], int] = {}
    for work in facts.work:
        for pod_set in work.pod_sets:
            shape, count = shapes.of(pod_set.template), work.least(pod_set)
            if (shape, count) not in fitting:
                fitting[shape, count] = _held(nodes, shape, count)
            held = fitting[shape, count]
            if held < count and not (held and not work.gang):
                yield _unfit(nodes, work, pod_set, shape, held)


def _held(nodes: Sequence[Node], shape: PodClass, count: int) -> int:
    """Return how many of `count` pods would fit if all nodes were empty."""
    held = 0
    for node in nodes:
        room = NodeFit(node)
        while held < count and room.place(shape):
            held += 1
    return held


def _unfit(nodes: Sequence[Node], work: Work, pod_set: PodSet, shape: PodClass, held: int) -> LintFinding:
    count = work.least(pod_set)
    asked = ", ".join(show(name, amount) for name, amount in pod_set.template.requests.items())
    biggest = {name: max(n.allocatable.get(name, 0) for n in nodes) for name in shape.requests}
    evidence: dict[str, str | int] = {"one pod": asked, "pods": count, "fit": held, "nodes": len(nodes)}
    if not held:
        why = Counter(filter(None, (node_refusal(node, shape) for node in nodes)))
        evidence |= {reason: f"{number} nodes" for reason, number in sorted(why.items())}
        evidence |= {f"largest node, {name}": format_quantity(name, amount) for name, amount in biggest.items()}
    return LintFinding(
        code="never-fits-node" if not held else "never-fits-cluster",
        level=LintLevel.ERROR,
        object=work.object,
        path=work.template_path,
        problem=f"a pod of {pod_set.name} fits on no node, even if the nodes were empty"
        if not held
        else f"the {count} pods of {pod_set.name} start together, but only {held} fit, even if all nodes were empty",
        evidence=evidence,
        fix="request less, correct nodeSelector, affinity and tolerations, or add nodes",
    )


EXCEEDED = "exceed limits for nodepool"


def lint_provisioning(facts: LintFacts) -> Iterator[LintFinding]:
    """Find work for which Karpenter could not provision a node even in an empty cluster."""
    pools = sorted(facts.snapshot.node_pools.all(), key=lambda pool: pool.name)
    if not pools:
        return
    catalogue = facts.engines.catalogue
    selling = catalogue is not None and catalogue.types
    offers = {pool.name: offerings_of(pool, catalogue) for pool in pools} if catalogue is not None and selling else {}
    for work in facts.work:
        for pod_set in work.pod_sets:
            if selling:
                yield from _provisioning_refused(facts, work, pod_set, Pools(pools, offers, {}))
            else:
                short = {pool.name: why for pool in pools if (why := _limit(pool.limits, pod_set.template.requests))}
                if len(short) == len(pools):
                    yield _limited(work, pod_set, short)
        yield from _all_pods(facts, work)


def _provisioning_refused(facts: LintFacts, work: Work, pod_set: PodSet, pools: Pools) -> Iterator[LintFinding]:
    """Find pods for which Karpenter provisions no node, with its reasons."""
    pod = Pod(name=pod_set.name, template=pod_set.template)
    rooms = [NodeFit(node) for node in facts.snapshot.nodes.all()]
    reason = plan_nodes([pod], rooms, pools, PodClasses()).failed.get(pod.key, "")
    if EXCEEDED in reason:
        yield _limited(work, pod_set, {pool.name: reason for pool in pools.ordered if pool.limits})
    elif reason:
        yield LintFinding(
            code="never-fits-node",
            level=LintLevel.ERROR,
            object=work.object,
            path=work.template_path,
            problem=f"no NodePool can provision a node for a pod of {pod_set.name}",
            evidence={"Karpenter": reason},
            fix="widen the requirements of a NodePool, or request less",
        )


def _all_pods(facts: LintFacts, work: Work) -> Iterator[LintFinding]:
    """Find gangs whose pods fit one by one, but together exceed the limits of all NodePools."""
    pools = list(facts.snapshot.node_pools.all())
    if not work.gang or not all(pool.limits for pool in pools) or len(facts.snapshot.nodes):
        return
    for name in sorted({name for pool in pools for name in pool.limits}):
        if not all(name in pool.limits for pool in pools):
            continue
        total = sum(work.least(one) * one.template.requests.get(name, 0) for one in work.pod_sets)
        limit = sum(pool.limits[name] for pool in pools)
        if total > limit and all(one.template.requests.get(name, 0) <= limit for one in work.pod_sets):
            yield LintFinding(
                code="pool-limits-below-requests",
                level=LintLevel.ERROR,
                object=work.object,
                path=work.template_path,
                problem="its pods form a gang and exceed the limits of all NodePools combined",
                evidence={name: f"{format_quantity(name, total)} of {format_quantity(name, limit)}"},
                fix="raise the limits of a NodePool, or request less",
            )


def _limit(limits: Resources, requests: Resources) -> str:
    """Format the first limit that the requests exceed."""
    for name, limit in limits.items():
        if requests.get(name, 0) > limit:
            return f"{show(name, requests[name])} of {format_quantity(name, limit)}"
    return ""


def _limited(work: Work, pod_set: PodSet, evidence: Mapping[str, str]) -> LintFinding:
    return LintFinding(
        code="pool-limits-below-requests",
        level=LintLevel.ERROR,
        object=work.object,
        path=work.template_path,
        problem=f"a pod of {pod_set.name} exceeds the limits of every NodePool: no node is provisioned for it",
        evidence=evidence,
        fix="raise the limits of a NodePool, or request less",
    )
