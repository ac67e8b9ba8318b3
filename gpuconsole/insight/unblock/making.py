"""How a change that may let a workload in is made to a rehearsal."""

from typing import assert_never

from msgspec.structs import replace

from gpuconsole.insight.unblock.steps import (
    AddNodes,
    AdmitNamespace,
    AskLess,
    DropSelector,
    End,
    FewerPods,
    LoosenBudget,
    LowerGang,
    MoveTo,
    RaiseLimit,
    Resume,
    Step,
    Tolerate,
    UsePriority,
    UseTopology,
)
from gpuconsole.model.cluster import Container, LabelSelector, Namespace, PodTemplate, Toleration
from gpuconsole.model.queues import ClusterQueue, Cohort, FlavorQuotas, Quota, ResourceGroup, StopPolicy
from gpuconsole.model.workloads import PodSet, TopologyRequest, Workload
from gpuconsole.sim.rehearsal import Rehearsal


def take(rehearsal: Rehearsal, key: str, step: Step) -> None:
    """Make a change, for the workload `key`."""
    objects = rehearsal.session.setup.objects
    workload = rehearsal.workloads[key]
    match step:
        case End(other):
            rehearsal.finish(other)
        case RaiseLimit(kind="ClusterQueue"):
            rehearsal.apply(_raised(objects.cluster_queues[step.name], step))
        case RaiseLimit():
            rehearsal.apply(_raised(objects.cohorts.get(step.name) or Cohort(name=step.name), step))
        case AddNodes():
            for number in range(1, step.count + 1):
                rehearsal.apply(objects.nodes[step.like].twin(f"{step.like}-more-{number}"))
        case Resume(kind="LocalQueue"):
            rehearsal.apply(replace(objects.local_queues[step.name], stop_policy=StopPolicy.NONE))
        case Resume(kind="ClusterQueue"):
            rehearsal.apply(replace(objects.cluster_queues[step.name], stop_policy=StopPolicy.NONE))
        case Resume(kind="Node"):
            rehearsal.apply(replace(objects.nodes[step.name], unschedulable=False))
        case LoosenBudget():
            pass  # Kueue asks no budget.
        case AdmitNamespace():
            _open(rehearsal, objects.cluster_queues[step.cluster_queue], step.namespace)
        case _:
            rehearsal.apply(changed(workload, step))


def changed(
    workload: Workload,
    step: AskLess | FewerPods | LowerGang | UsePriority | UseTopology | Tolerate | DropSelector | MoveTo | Resume,
) -> Workload:
    """The workload as it would have been submitted with this change."""
    match step:
        case Resume():
            return replace(workload, active=True)
        case MoveTo(queue):
            return replace(workload, queue=queue)
        case UsePriority():
            return replace(workload, priority=step.priority, priority_class="", priority_kind="")
        case LowerGang():
            lowered = (replace(p, min_count=step.count) if p.name == step.gang else p for p in workload.pod_sets)
            return replace(workload, pod_sets=tuple(lowered))
        case AskLess() | FewerPods() | UseTopology() | Tolerate() | DropSelector():
            return replace(workload, pod_sets=reshaped(workload.pod_sets, step))
        case _:
            assert_never(step)


def reshaped(
    pod_sets: tuple[PodSet, ...], step: AskLess | FewerPods | UseTopology | Tolerate | DropSelector
) -> tuple[PodSet, ...]:
    """The pod sets with this change of one of them."""
    return tuple(_changed(p, step) if p.name == step.pod_set else p for p in pod_sets)


def _changed(pod_set: PodSet, step: AskLess | FewerPods | UseTopology | Tolerate | DropSelector) -> PodSet:
    template = pod_set.template
    match step:
        case FewerPods():
            return replace(pod_set, count=step.count)
        case UseTopology():
            asked = pod_set.topology or TopologyRequest()
            anywhere = not (step.required or step.preferred)
            looser = replace(asked, required=step.required, preferred=step.preferred, unconstrained=anywhere)
            return replace(pod_set, topology=looser)
        case AskLess():
            return replace(pod_set, template=_asking(template, step.resource, step.amount))
        case Tolerate():
            one = Toleration(step.key, "Equal", step.value, step.effect)
            return replace(pod_set, template=replace(template, tolerations=(*template.tolerations, one)))
        case DropSelector():
            left = {key: value for key, value in template.node_selector.items() if key != step.label}
            return replace(pod_set, template=replace(template, node_selector=left))
        case _:
            assert_never(step)


def _asking(template: PodTemplate, resource: str, amount: int) -> PodTemplate:
    """The template with so much less in the containers that ask for the resource, the last one first."""
    surplus = template.requests.get(resource, 0) - amount
    containers: list[Container] = []
    for container in reversed(template.containers):
        held = container.requests.get(resource, container.limits.get(resource, 0))
        cut = min(held, surplus)
        surplus -= cut
        containers.append(_cut(container, resource, held - cut) if cut else container)
    return replace(template, containers=tuple(reversed(containers)))


def _cut(container: Container, resource: str, amount: int) -> Container:
    requests = {**container.requests, resource: amount}
    limits = {**container.limits, resource: amount} if resource in container.limits else container.limits
    return replace(container, requests=requests, limits=limits)


def _raised(owner: ClusterQueue | Cohort, step: RaiseLimit) -> ClusterQueue | Cohort:
    """The owner with a greater quota or limit; where it has no quota for it, it gets one."""
    pair = (step.flavor, step.resource)
    old = owner.quotas().get(pair, Quota())
    match step.limit:
        case "nominalQuota":
            new = replace(old, nominal=old.nominal + step.by)
        case "borrowingLimit":
            new = replace(old, borrowing_limit=(old.borrowing_limit or 0) + step.by)
        case "lendingLimit":
            new = replace(old, lending_limit=(old.lending_limit or 0) + step.by)
    if pair not in owner.quotas():
        group = ResourceGroup((step.resource,), (FlavorQuotas(step.flavor, {step.resource: new}),))
        return replace(owner, resource_groups=(*owner.resource_groups, group))
    groups = tuple(replace(g, flavors=tuple(_with(f, pair, new) for f in g.flavors)) for g in owner.resource_groups)
    return replace(owner, resource_groups=groups)


def _with(flavor: FlavorQuotas, pair: tuple[str, str], quota: Quota) -> FlavorQuotas:
    if flavor.name != pair[0] or pair[1] not in flavor.resources:
        return flavor
    return replace(flavor, resources={**flavor.resources, pair[1]: quota})


def _open(rehearsal: Rehearsal, queue: ClusterQueue, namespace: str) -> None:
    known = rehearsal.session.setup.objects.namespaces.get(namespace) or Namespace(name=namespace)
    if queue.namespace_selector is None:
        rehearsal.apply(replace(queue, namespace_selector=LabelSelector()))
    rehearsal.apply(
        replace(known, labels={**known.labels, **(queue.namespace_selector or LabelSelector()).match_labels})
    )
