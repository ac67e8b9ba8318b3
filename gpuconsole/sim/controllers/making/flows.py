"""JobFlows: the Jobs of their templates, in the order of their dependencies (Volcano 1.15 controllers/jobflow)."""

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from gpuconsole.model.clock import Time
from gpuconsole.model.job import FlowRules, Job, JobPhase, TemplateRules
from gpuconsole.sim.world import World

BY_TEMPLATE, BY_FLOW = "volcano.sh/createdByJobTemplate", "volcano.sh/createdByJobFlow"
"""Labels and annotations of the created Jobs."""


def ready_flow_jobs(world: World, flow: Job, rules: FlowRules, children: Sequence[Job]) -> Iterator[Job]:
    """Jobs that do not exist yet, whose template exists and whose dependencies are complete."""
    phases = {child.name: child.phase for child in children}
    for one in rules.flows:
        needs = (phases.get(f"{flow.name}-{target}") for target in one.targets)
        if f"{flow.name}-{one.template}" not in phases and all(phase is JobPhase.SUCCEEDED for phase in needs):
            template = world.job(f"JobTemplate/{flow.namespace}/{one.template}")
            if template is not None and isinstance(template.rules, TemplateRules):
                yield _job(world, flow, template, template.rules)


def _job(world: World, flow: Job, template: Job, rules: TemplateRules) -> Job:
    name = f"{flow.name}-{template.name}"
    marks = {BY_TEMPLATE: f"{flow.namespace}.{template.name}", BY_FLOW: f"{flow.namespace}.{flow.name}"}
    return Job(
        kind="VolcanoJob",
        namespace=flow.namespace,
        name=name,
        uid=world.uid("VolcanoJob", f"{flow.namespace}/{name}"),
        created=world.now,
        owner=flow.key,
        labels=marks,
        annotations=marks,
        pod_sets=template.pod_sets,
        min_available=rules.volcano.min_available,
        volcano=rules.volcano,
        duration=template.duration,
        checkpoint_interval=template.checkpoint_interval,
        backoff_limit=template.backoff_limit,
    )


def flow_with_phase(flow: Job, rules: FlowRules, children: Sequence[Job], now: Time) -> Job:
    """The flow with its phase: succeeded if all of its Jobs have, failed if one has, running once one runs."""
    phases = [child.phase for child in children]
    if JobPhase.FAILED in phases:
        return replace(flow, phase=JobPhase.FAILED, finished=now)
    if phases and phases.count(JobPhase.SUCCEEDED) == len(rules.flows):
        return replace(flow, phase=JobPhase.SUCCEEDED, finished=now)
    if JobPhase.RUNNING in phases or JobPhase.SUCCEEDED in phases:
        return replace(flow, phase=JobPhase.RUNNING, started=flow.started or now)
    return flow
