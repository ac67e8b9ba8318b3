"""Small Volcano Jobs and their pods for the tests of the job controller's rules."""

from typing import Any

from gpuconsole.model.cluster import Pod, PodPhase
from gpuconsole.model.job import Job
from gpuconsole.model.pod_template import Container, PodSet, PodTemplate
from gpuconsole.model.volcano import TaskSpec, VolcanoPhase, VolcanoSpec, VolcanoStatus
from gpuconsole.scheduling.volcano.jobs.pods import pod_of
from gpuconsole.scheduling.volcano.jobs.states import tasks_of

NOW = 1_000_000
GPU = "nvidia.com/gpu"


def template(**requests: int) -> PodTemplate:
    return PodTemplate(containers=(Container(requests={name.replace("gpu", GPU): n for name, n in requests.items()}),))


def job(
    *tasks: tuple[str, int] | tuple[str, int, TaskSpec],
    templates: dict[str, PodTemplate] | None = None,
    status: VolcanoStatus | None = None,
    **spec: Any,
) -> Job:
    """A job with tasks (name, replicas, what else it says); it needs all its pods if nothing is said."""
    listed = [(task[0], task[1], task[2] if len(task) == 3 else TaskSpec()) for task in tasks]
    total = sum(replicas for _, replicas, _ in listed)
    sets = tuple(
        PodSet(name=name, count=replicas, template=(templates or {}).get(name, PodTemplate()))
        for name, replicas, _ in listed
    )
    said = {"min_available": total, "max_retry": 3, **spec}
    return Job(
        kind="VolcanoJob",
        namespace="red",
        name="train",
        uid="uid",
        pod_sets=sets,
        volcano=VolcanoSpec(tasks=tuple(own for *_, own in listed), **said),
        volcano_status=status or VolcanoStatus(phase=VolcanoPhase.RUNNING),
    )


def pods(one: Job, **phases: str) -> list[Pod]:
    """The pods of a job's tasks: a letter each, Pending, Running, Succeeded, Failed; small is leaving, - is missing."""
    named = {phase.value[0]: phase for phase in PodPhase}
    made = []
    for task in tasks_of(one):
        for index, letter in enumerate(phases.get(task.name, "")):
            if letter != "-":
                deleted = NOW if letter.islower() else 0
                made.append(pod_of(one, task, index, phase=named[letter.upper()], deleted=deleted))
    return made


def names(found: Any) -> list[str]:
    return [pod.name.removeprefix("train-") for pod in found]
