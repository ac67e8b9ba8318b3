"""Names as people know them: by themselves, and within sentences."""

import pytest

from gpuconsole.model.clock import HOUR
from gpuconsole.model.events import HistoryEvent, HistoryEventKind
from gpuconsole.model.jobs.workloads import workload_name
from gpuconsole.ui.names import called, named
from tests.support.console_clusters import NOW, org_cohort, recorded, waiting
from tests.support.console_stage import SIZES, staged

KEYS = {
    "research/job-rlhf-04066": "research/rlhf",
    "job-rlhf-04066": "rlhf",
    "ranking/pytorchjob-rank-16-82e33": "ranking/rank-16",
    "team/jobset-job-a-1c0de-82e33": "team/job-a-1c0de",
    "research/rlhf": "research/rlhf",
    "research/job-rlhf": "research/job-rlhf",
}


@pytest.mark.parametrize(("key", "want"), KEYS.items())
def test_a_workload_goes_by_the_name_of_its_job(key: str, want: str) -> None:
    assert (called(key), named(key)) == (want, want)


@pytest.mark.parametrize("kind", ["Job", "JobSet", "PyTorchJob", "RayCluster", "StatefulSet"])
def test_every_name_that_kueue_makes_is_known(kind: str) -> None:
    assert called(f"team/{workload_name(kind, 'train', 'uid')}") == "team/train"


def test_a_sentence_has_all_its_names_and_nothing_else_changes() -> None:
    told = "number 2, after team/job-large-bcd0a; used by c/job-c-32-b7650 32, c/jobset-d-aaaaa. See job-x-12345-0."

    assert named(told) == "number 2, after team/large; used by c/c-32 32, c/d. See job-x-12345-0."


@pytest.mark.parametrize("size", SIZES, ids=str)
async def test_who_waits_longest_goes_by_the_name_of_its_job_on_the_dashboard(size: tuple[int, int]) -> None:
    made = waiting("job-train-0a1b2", 4, ago=2 * HOUR)
    async with staged(recorded([*org_cohort(), made]), size) as stage:
        assert "oldest research/train, 2h" in stage.text
        assert made.name not in stage.text


async def test_history_and_the_life_of_a_workload_name_jobs() -> None:
    made, by = waiting("job-train-0a1b2", 4), "prod/jobset-serve-9-82e33"
    lines = [
        HistoryEvent(time=NOW, what=HistoryEventKind.PREEMPTED, workload=made.key, by=by, message=f"for {by}", gpus=4)
    ]
    async with staged(recorded([*org_cohort(), made], lines)) as stage:
        await stage.press("alt+0")
        row = " ".join(stage.line("✖ preempted").split())
        assert row.endswith("preempted research/train 4 by prod/serve-9: for prod/serve-9")
        await stage.press("enter", "enter")
        assert "preempted by prod/serve-9" in stage.text
