"""Lint rules for work that can never run: it exceeds every node, or the maximum capacity of its queue."""

from collections import Counter
from collections.abc import Iterator, Sequence

from gpuconsole.insight.empty_cluster import EmptyCluster
from gpuconsole.insight.linting.facts import LintFacts, Work
from gpuconsole.insight.linting.findings import LintFinding, LintLevel
from gpuconsole.insight.linting.selecting import unoffered
from gpuconsole.insight.pending_reasons import PendingReason
from gpuconsole.insight.shortage import show
from gpuconsole.insight.slicing import undivided
from gpuconsole.model.cluster import Node
from gpuconsole.model.job import Job
from gpuconsole.model.pod_template import PodSet
from gpuconsole.model.queues import ClusterQueue
from gpuconsole.model.resources import PODS, format_quantity, is_mig
from gpuconsole.model.volcano import VolcanoQueue
from gpuconsole.scheduling.kube.filters import refusal
from gpuconsole.scheduling.kube.pod_classes import PodClass, PodClasses
from gpuconsole.scheduling.kueue.config import KueueConfig, transformed, without_excluded
from gpuconsole.sim.autoscaling.node_fit import NodeFit


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
        one = transformed(
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
            counted = transformed(
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
        while held < count and room.take(shape):
            held += 1
    return held


def _unfit(nodes: Sequence[Node], work: Work, pod_set: PodSet, shape: PodClass, held: int) -> LintFinding:
    count = work.least(pod_set)
    asked = ", ".join(show(name, amount) for name, amount in pod_set.template.requests.items())
    biggest = {name: max(n.allocatable.get(name, 0) for n in nodes) for name in shape.requests}
    evidence: dict[str, str | int] = {"one pod": asked, "pods": count, "fit": held, "nodes": len(nodes)}
    if not held:
        why = Counter(filter(None, (refusal(node, shape) for node in nodes)))
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
