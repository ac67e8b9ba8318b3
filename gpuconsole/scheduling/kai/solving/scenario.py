"""A set of victims tried together for a job, by job and by node (KAI 0.13 solvers/scenario)."""

from collections.abc import Mapping, Sequence

from gpuconsole.scheduling.kai.api.jobs import PodGroupInfo
from gpuconsole.scheduling.kai.api.tasks import PodInfo
from gpuconsole.scheduling.kai.functions import VictimJob
from gpuconsole.scheduling.kai.session import KaiSession


class GrowingScenario:
    """Recorded victims, needed by earlier tasks of the job, and potential ones. Mutates."""

    def __init__(self, session: KaiSession, preemptor: PodGroupInfo, recorded: Sequence[PodGroupInfo]) -> None:
        self._session = session
        self.preemptor = preemptor
        self.pending: list[PodInfo] = list(preemptor.tasks())
        self.potential: list[PodInfo] = []
        self.recorded: list[PodInfo] = [task for job in recorded for task in job.tasks()]
        self.groups: dict[str, list[PodGroupInfo]] = {}
        """Job → its victims, one partial job for each set of tasks that was added together."""
        self._victims: dict[str, VictimJob] = {}
        self._jobs_on: dict[str, list[str]] = {}
        for job in recorded:
            self._take(list(job.tasks()))

    def add(self, tasks: Sequence[PodInfo]) -> None:
        """Add these tasks, of one job, as potential victims."""
        if not tasks:
            return
        self.potential += tasks
        self._take(tasks)
        for task in tasks:
            jobs = self._jobs_on.setdefault(task.node, [])
            if task.job not in jobs:
                jobs.append(task.job)

    def _take(self, tasks: Sequence[PodInfo]) -> None:
        job = self._session.jobs[tasks[0].job]
        self.groups.setdefault(job.uid, []).append(job.part(tasks))
        known = self._victims.get(job.uid)
        self._victims[job.uid] = VictimJob(job, [*(known.tasks if known else ()), *tasks])

    def victims(self) -> Mapping[str, VictimJob]:
        """All victims by job."""
        return self._victims

    @property
    def latest(self) -> PodGroupInfo | None:
        """The job whose tasks were added last."""
        return self._session.jobs[self.potential[-1].job] if self.potential else None

    def victims_on(self, node: str) -> list[PodInfo]:
        """The victims of every job that has a potential victim on the node, except recorded ones."""
        recorded = {task.uid for task in self.recorded}
        return [
            task
            for job in sorted(self._jobs_on.get(node, ()))
            for group in self.groups[job]
            for task in group.tasks()
            if task.uid not in recorded
        ]

    def group_of(self, task: PodInfo) -> PodGroupInfo | None:
        """The partial job that the victim was added with; None if it is not a victim of the scenario."""
        return next((g for g in self.groups.get(task.job, ()) if any(t.uid == task.uid for t in g.tasks())), None)
