"""Lint rules for Karpenter: no NodePool can provision a node for a pod, or the limits are too low."""

from collections.abc import Iterator, Mapping

from gpuconsole.insight.linting.facts import LintFacts, Work
from gpuconsole.insight.linting.findings import LintFinding, LintLevel
from gpuconsole.insight.shortage import show
from gpuconsole.model.cluster import Pod
from gpuconsole.model.pod_template import PodSet
from gpuconsole.model.resources import Resources, format_quantity
from gpuconsole.scheduling.kube.pod_classes import PodClasses
from gpuconsole.sim.autoscaling.node_fit import NodeFit
from gpuconsole.sim.autoscaling.provisioning import Pools, offers_of, plan

EXCEEDED = "exceed limits for nodepool"


def lint_provisioning(facts: LintFacts) -> Iterator[LintFinding]:
    """Find work for which Karpenter could not provision a node even in an empty cluster."""
    pools = sorted(facts.snapshot.node_pools.all(), key=lambda pool: pool.name)
    if not pools:
        return
    catalogue = facts.engines.catalogue
    selling = catalogue is not None and catalogue.types
    offers = {pool.name: offers_of(pool, catalogue) for pool in pools} if catalogue is not None and selling else {}
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
    reason = plan([pod], rooms, pools, PodClasses()).failed.get(pod.key, "")
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
