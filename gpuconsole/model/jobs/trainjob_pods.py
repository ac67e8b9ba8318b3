"""Pods of a TrainJob, defined by it and its runtime (Kubeflow trainer 2.2 runtime core, jobset builder)."""

from msgspec.structs import replace

from gpuconsole.model.job import Job
from gpuconsole.model.job_rules import PodPatch, TrainRules
from gpuconsole.model.pod_sets import PodSet
from gpuconsole.model.pod_template import Container, PodTemplate
from gpuconsole.model.training_runtimes import LAUNCHER, NODE, TrainingRuntime


def with_runtime_pods(job: Job, runtime: TrainingRuntime) -> Job:
    """Return the TrainJob with the pod sets of its runtime and its own changes to them."""
    rules = job.rules
    assert isinstance(rules, TrainRules)
    return replace(job, pod_sets=tuple(_part(pods, rules, runtime) for pods in runtime.pod_sets))


def _part(pods: PodSet, rules: TrainRules, runtime: TrainingRuntime) -> PodSet:
    trains = pods.name in runtime.trainers
    template = pods.template
    for patch in rules.patches:
        if not patch.jobs or pods.name in patch.jobs:
            template = _patched(template, patch)
    if trains or (runtime.launcher_is_node and pods.name == NODE):
        template = replace(template, containers=tuple(_sized(one, rules, trains) for one in template.containers))
    return replace(pods, count=_count(pods, rules, runtime), template=template)


def _count(pods: PodSet, rules: TrainRules, runtime: TrainingRuntime) -> int:
    if runtime.mpi:
        if pods.name != NODE:
            return 1 if pods.name == LAUNCHER else pods.count
        if rules.nodes is None:
            return pods.count
        return max(rules.nodes - 1, 1) if runtime.launcher_is_node else rules.nodes
    if pods.name not in runtime.trainers:
        return pods.count
    if rules.nodes is not None:
        return rules.nodes
    return pods.count if runtime.nodes is None else runtime.nodes


def _sized(container: Container, rules: TrainRules, trains: bool) -> Container:
    """Set the TrainJob's resources in the container that trains, and its image if the pod set is a trainer's."""
    if container.name != NODE:
        return container
    if rules.requests is not None:
        container = replace(container, requests=rules.requests, limits=rules.limits, fractions={})
    return replace(container, image=rules.image) if rules.image and trains else container


def _patched(template: PodTemplate, patch: PodPatch) -> PodTemplate:
    return replace(
        template,
        labels={**template.labels, **patch.labels},
        annotations={**template.annotations, **patch.annotations},
        node_selector={**template.node_selector, **patch.node_selector},
        tolerations=(*template.tolerations, *patch.tolerations),
    )
