"""Hyper nodes assigned to a job and its sub-jobs in a trial, until it is committed or discarded."""

from collections.abc import Iterable

from gpuconsole.scheduling.volcano.api.job import JobInfo
from gpuconsole.scheduling.volcano.domains import HyperNodeDomains


class Decisions:
    """Records the hyper nodes that the trials of one action chose (allocate's Recorder). Mutates."""

    def __init__(self, domains: HyperNodeDomains) -> None:
        self._domains = domains
        self._of_job: dict[str, str] = {}
        self._of_sub_job: dict[tuple[str, str], dict[str, str]] = {}
        """(job, hyper node tried for the job) → hyper node by sub-job."""
        self._before: dict[str, dict[str, str]] = {}

    def remember(self, job: JobInfo, sub_jobs: Iterable[str]) -> None:
        """Save the hyper nodes of a job's sub-jobs before it is tried."""
        known = [uid for uid in sub_jobs if uid in job.sub_jobs]
        self._before[job.uid] = {uid: job.sub_jobs[uid].allocated_hyper_node for uid in known}

    def take_back(self, job: JobInfo) -> None:
        """Restore the saved hyper nodes of the sub-jobs."""
        for uid, hyper_node in self._before.get(job.uid, {}).items():
            if uid in job.sub_jobs:
                job.sub_jobs[uid].allocated_hyper_node = hyper_node

    def save_job(self, job: str, hyper_node: str) -> None:
        """Record the hyper node chosen for a job."""
        self._of_job[job] = hyper_node

    def save_sub_job(self, job: str, tried: str, sub_job: str, hyper_node: str) -> None:
        """Record a sub-job's hyper node in the trial of `tried` for its job."""
        self._of_sub_job.setdefault((job, tried), {})[sub_job] = hyper_node

    def carry_out(self, job: JobInfo) -> None:
        """Apply the recorded hyper nodes of the job and its sub-jobs after a commit."""
        chosen = self._of_job.get(job.uid)
        if not chosen:
            return
        common = self._domains.common
        job.allocated_hyper_node = common(job.allocated_hyper_node, chosen)
        for uid, hyper_node in self._of_sub_job.get((job.uid, chosen), {}).items():
            sub_job = job.sub_jobs.get(uid)
            if sub_job is not None:
                sub_job.allocated_hyper_node = common(sub_job.allocated_hyper_node, hyper_node)
                sub_job.nominated_hyper_node = ""
