"""Watches of Volcano's job controller: changes of its jobs' pods and PodGroups become requests."""

from gpuconsole.model.cluster import Pod, PodPhase
from gpuconsole.model.volcano import JobEvent, PodGroup
from gpuconsole.scheduling.volcano.jobs.requests import (
    JobRequest,
    event_of_change,
    is_outdated,
    request_of,
    request_of_group,
)
from gpuconsole.sim.controllers.volcano import groups
from gpuconsole.sim.controllers.volcano.members import pods_of_job
from gpuconsole.sim.world import VolcanoChange, World

EXIT_CODE = 1
"""Exit code of the containers when a simulated pod fails by itself; there is none when a node is lost."""
_BY_ITSELF = "Error"


def request_about(world: World, change: VolcanoChange) -> JobRequest | None:
    """The request caused by a change; None if it does not affect a job."""
    obj = change.new or change.old
    if isinstance(obj, PodGroup):
        return _about_group(world, change.old, change.new)
    assert isinstance(obj, Pod)
    job = world.job(obj.job)
    if job is None:
        return None
    old, new = change.old, change.new
    assert not isinstance(old, PodGroup)
    assert not isinstance(new, PodGroup)
    if new is None:
        return request_of(obj, job, JobEvent.POD_EVICTED)
    if old is None:
        return request_of(new, job, JobEvent.POD_PENDING)
    if (old.phase, old.deleted > 0, is_outdated(old)) == (new.phase, new.deleted > 0, is_outdated(new)):
        return None
    exit_code = EXIT_CODE if new.reason == _BY_ITSELF else 0
    # The other pods matter only when this one has succeeded.
    others = pods_of_job(world, job) if new.phase is PodPhase.SUCCEEDED else ()
    event = event_of_change(old, new, job, others)
    return request_of(new, job, event, exit_code if event is JobEvent.POD_FAILED else 0)


def _about_group(world: World, old: object, new: object) -> JobRequest | None:
    """The request for a PodGroup that became Inqueue or Unknown."""
    if not isinstance(old, PodGroup) or not isinstance(new, PodGroup):
        return None
    job = groups.group_owner(world, new.key)
    return request_of_group(job, new, old) if job else None
