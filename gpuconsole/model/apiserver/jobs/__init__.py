"""What Kueue's webhooks ask of jobs: their queue, their limits, how close their pods have to be (Kueue 0.19)."""

from gpuconsole.model.apiserver.jobs.kinds import JOB_KINDS, as_stored, check_job

__all__ = ["JOB_KINDS", "as_stored", "check_job"]
