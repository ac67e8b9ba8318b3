"""shuffle: evicts running tasks that plugins name as victims, whoever waits."""

from gpuconsole.scheduling.volcano.api.status import TaskStatus
from gpuconsole.scheduling.volcano.session import VolcanoSession

NAME = "shuffle"


def shuffle(session: VolcanoSession) -> None:
    """Evict all that the first tier names that names any."""
    running = [task for job in session.jobs.values() for _, task in sorted(job.of_status(TaskStatus.RUNNING).items())]
    for victim in session.victim_tasks(running):
        session.evict(victim, NAME)
