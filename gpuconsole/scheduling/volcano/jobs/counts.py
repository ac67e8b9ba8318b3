"""Job status: counts of pods by phase, and conditions for phase changes."""

from collections.abc import Iterable

from msgspec.structs import replace

from gpuconsole.model.clock import Time
from gpuconsole.model.cluster import Pod, PodPhase
from gpuconsole.model.volcano import VolcanoPhase, VolcanoStatus
from gpuconsole.scheduling.volcano.jobs.labels import TASK_SPEC

Conditions = tuple[tuple[VolcanoPhase, Time], ...]


def counted(status: VolcanoStatus, pods: Iterable[Pod], terminating: int) -> VolcanoStatus:
    """The status with the pods counted by phase and by task, and with this number of terminating pods."""
    phases = dict.fromkeys(PodPhase, 0)
    tasks: dict[str, dict[str, int]] = {}
    for pod in pods:
        phases[pod.phase] += 1
        task = pod.annotations.get(TASK_SPEC)
        if task is not None:
            by_phase = tasks.setdefault(task, {})
            by_phase[pod.phase.value] = by_phase.get(pod.phase.value, 0) + 1
    return replace(
        status,
        pending=phases[PodPhase.PENDING],
        running=phases[PodPhase.RUNNING],
        succeeded=phases[PodPhase.SUCCEEDED],
        failed=phases[PodPhase.FAILED],
        terminating=terminating,
        tasks=tasks,
    )


def with_condition(conditions: Conditions, phase: VolcanoPhase, now: Time) -> Conditions:
    """Append the condition of a phase, and remove an earlier one of the same phase."""
    return (*((known, since) for known, since in conditions if known is not phase), (phase, now))


def in_phase(status: VolcanoStatus, now: Time) -> VolcanoStatus:
    """The status with its transition time and the condition of its current phase set to now."""
    return replace(status, transition=now, conditions=with_condition(status.conditions, status.phase, now))
