"""Jobs that no Workload stands for run and wait themselves; a CronJob does neither, the Jobs do that it makes."""

from collections.abc import Sequence

import pytest

from gpuconsole.insight.index.unqueued_work import unqueued_work
from gpuconsole.insight.pending.pending import explain
from gpuconsole.insight.pending.reasons import PendingReason
from gpuconsole.model.job import CronRules, Job
from tests.support.snapshots import world

NIGHTLY = Job(kind="CronJob", namespace="team", name="nightly", rules=CronRules(schedule="30 3 * * *"))


@pytest.mark.parametrize(
    ("jobs", "keys"),
    [
        ([Job(namespace="team", name="alone")], ["Job/team/alone"]),
        ([Job(namespace="team", name="part", owner="JobSet/team/whole")], []),
        ([NIGHTLY], []),
        ([NIGHTLY, Job(namespace="team", name="nightly-1", owner=NIGHTLY.key)], ["Job/team/nightly-1"]),
        ([Job(namespace="team", name="nightly-1", owner=NIGHTLY.key)], ["Job/team/nightly-1"]),
    ],
    ids=["alone", "part of another", "a CronJob", "with a Job of its", "its Job where it may not be read"],
)
def test_who_stands_for_itself(jobs: Sequence[Job], keys: Sequence[str]) -> None:
    assert list(unqueued_work(world(jobs))) == keys


def test_a_cron_job_waits_for_nothing() -> None:
    told = explain(world([NIGHTLY]), NIGHTLY.key)
    assert (told.code, told.headline) == (
        PendingReason.NOT_WAITING,
        "Not pending: it creates a Job on the schedule 30 3 * * *.",
    )
