"""shuffle action: evicts running tasks that plugins name as victims, independent of pending jobs."""

from gpuconsole.scheduling.volcano.api.status import TaskStatus
from gpuconsole.scheduling.volcano.session import VolcanoSession

SHUFFLE = "shuffle"


def shuffle(session: VolcanoSession) -> None:
    """Evict the victims of the first tier that names any."""
    running = [task for job in session.jobs.values() for _, task in sorted(job.of_status(TaskStatus.RUNNING).items())]
    for victim in session.victim_tasks(running):
        session.evict(victim, SHUFFLE)
