"""Kueue's webhooks for jobs: queue name, limits, topology requests (Kueue 0.19)."""

from gpuconsole.model.apiserver.jobs.kinds import JOB_KINDS, as_stored, check_job

__all__ = ["JOB_KINDS", "as_stored", "check_job"]
