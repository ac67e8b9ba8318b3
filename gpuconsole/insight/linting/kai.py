"""Lint rules for KAI: gangs that exceed the limit or quota of their queue, or of a queue above it."""

from collections.abc import Iterator, Mapping

from msgspec.structs import replace

from gpuconsole.insight.linting.facts import LintFacts, Work
from gpuconsole.insight.linting.findings import LintFinding, LintLevel
from gpuconsole.model.cluster import Pod, default_class
from gpuconsole.model.kai import KaiPodGroup
from gpuconsole.model.pod_template import PodTemplate
from gpuconsole.scheduling.kai.api.tasks import PodInfo
from gpuconsole.scheduling.kai.cluster_info import group_priority, job_of, preemptible, queues_of, template_task
from gpuconsole.scheduling.kai.config import KaiPolicy, Parameters
from gpuconsole.scheduling.kai.fair_share.division import shares_of
from gpuconsole.scheduling.kai.fair_share.reclaimable import OverCapacity, over_capacity, requested_by
from gpuconsole.scheduling.kai.fair_share.resource_share import QueueShares
from gpuconsole.scheduling.kai.messages import OVER_LIMIT

DEFAULTS = KaiPolicy()


def lint_kai(facts: LintFacts) -> Iterator[LintFinding]:
    """Find work that exceeds the limits of KAI's queues, or their quota for non-preemptible pods."""
    if not len(facts.snapshot.kai_queues):
        return
    queues = queues_of(facts.snapshot.kai_queues, DEFAULTS.default_queue, {})
    shares = {queue.uid: shares_of(queue) for queue in queues}
    for work in facts.work:
        over = _over(facts, shares, work) if facts.placing(work) == "KAI" else None
        if over is not None:
            yield _too_much(work, over)


def _over(facts: LintFacts, shares: Mapping[str, QueueShares], work: Work) -> OverCapacity | None:
    """Return KAI's refusal of the pods that start together, with empty queues; sub-groups are not checked."""
    group = facts.group(work)
    kai = group if isinstance(group, KaiPodGroup) else None
    if kai is not None and kai.sub_groups:
        return None
    pods, tasks = _starting(facts, work)
    if not tasks:
        return None
    job = job_of("", pods, tasks, DEFAULTS.default_queue, None)
    if kai is not None:
        priority = group_priority(kai, facts.snapshot.priority_classes)
        job.queue, job.preemptible = kai.queue, preemptible(kai.preemptibility, priority)
    return over_capacity(shares, job, requested_by(tasks))


def _starting(facts: LintFacts, work: Work) -> tuple[dict[str, Pod], list[PodInfo]]:
    """Return the pods that start together: all of a gang, else a single pod."""
    scheduler = Parameters().scheduler_name
    tasks: list[PodInfo] = []
    pods: dict[str, Pod] = {}
    for pod_set in work.pod_sets:
        template = replace(pod_set.template, priority=_priority(facts, pod_set.template))
        for _ in range(work.least(pod_set) if work.gang else 1):
            task = template_task(template, len(tasks), scheduler)
            tasks.append(task)
            # KAI's pod grouper also reads the queue from the pods' owner.
            pods[task.uid] = Pod(
                name=task.name,
                template=template,
                priority=template.priority or 0,
                labels=work.obj.labels,
                annotations=work.obj.annotations,
            )
    return pods, tasks


def _priority(facts: LintFacts, template: PodTemplate) -> int:
    """Return the priority that the admission plugin Priority sets; an undefined class is another finding."""
    classes = facts.snapshot.priority_classes
    if template.priority is not None:
        return template.priority
    named = classes.get(template.priority_class)
    return named.value if named is not None else 0 if template.priority_class else default_class(classes.all())[0]


def _too_much(work: Work, over: OverCapacity) -> LintFinding:
    what = "the limit" if over.reason == OVER_LIMIT else "the quota for non-preemptible pods"
    return LintFinding(
        code="never-fits-quota",
        level=LintLevel.ERROR,
        object=work.object,
        path=work.template_path,
        problem=f"its pods form a gang and exceed {what} of KAI queue {over.queue}: it is never scheduled",
        evidence={"on an empty cluster": over.message},
        fix="request less, raise the queue's limit, or make it preemptible if the quota is exceeded",
    )
