"""Names that people type: whatever an answer calls a workload, the next question understands."""

import pytest

from gpuconsole.cli.answering import subject_named, whole_named
from gpuconsole.errors import UsageError
from gpuconsole.model.cluster import Pod
from gpuconsole.model.job import CronRules, Job
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.model.workloads import Workload
from tests.support.snapshots import world

RLHF = Workload(name="job-rlhf-04066", namespace="research", owner="Job/research/rlhf")
TWIN = Workload(name="pytorchjob-rlhf-1a2b3", namespace="prod", owner="PyTorchJob/prod/rlhf")
LONE = Workload(name="job-lone-8c2d7", namespace="prod")
LEFT = Job(name="serve", namespace="prod")
POD = Pod(name="note", namespace="lab")


@pytest.fixture
def snapshot() -> Snapshot:
    return world([RLHF, TWIN, LONE, LEFT, POD])


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("research/job-rlhf-04066", "research/job-rlhf-04066"),
        ("Job/research/rlhf", "research/job-rlhf-04066"),
        ("research/rlhf", "research/job-rlhf-04066"),
        ("job-rlhf-04066", "research/job-rlhf-04066"),
        ("prod/lone", "prod/job-lone-8c2d7"),
        ("lone", "prod/job-lone-8c2d7"),
    ],
)
def test_every_name_of_a_workload_means_it(snapshot: Snapshot, name: str, key: str) -> None:
    assert (subject_named(snapshot, name), whole_named(snapshot, name)) == (key, key)


@pytest.mark.parametrize("name", ["Job/prod/serve", "prod/serve", "serve"])
def test_a_job_without_a_workload_is_meant_itself(snapshot: Snapshot, name: str) -> None:
    assert (subject_named(snapshot, name), whole_named(snapshot, name)) == ("Job/prod/serve", "Job/prod/serve")


@pytest.mark.parametrize("name", ["lab/note", "note"])
def test_so_is_a_pod(snapshot: Snapshot, name: str) -> None:
    assert (subject_named(snapshot, name), whole_named(snapshot, name)) == ("lab/note", "lab/note")


@pytest.mark.parametrize(("name", "whole"), [("head-0", "prod/job-lone-8c2d7"), ("serve-1", "Job/prod/serve")])
def test_a_pod_means_the_whole_that_it_is_part_of(name: str, whole: str) -> None:
    parts = (
        Pod(name="head-0", namespace="prod", workload="prod/job-lone-8c2d7"),
        Pod(name="serve-1", namespace="prod", job="Job/prod/serve"),
    )
    snapshot = world([LONE, LEFT, *parts])
    assert (subject_named(snapshot, name), whole_named(snapshot, name)) == (f"prod/{name}", whole)


def test_what_only_makes_jobs_neither_runs_nor_waits() -> None:
    nightly = Job(kind="CronJob", name="nightly", namespace="prod", rules=CronRules(schedule="0 2 * * *"))
    with pytest.raises(UsageError, match="CronJob/prod/nightly has no pods of its own"):
        whole_named(world([nightly]), "nightly")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (
            "rlhf",
            "rlhf is ambiguous: prod/pytorchjob-rlhf-1a2b3, research/job-rlhf-04066; use one of these names",
        ),
        ("research/rlhv", "there is no workload, job or pod research/rlhv; did you mean research/rlhf?"),
        ("lonee", "there is no workload, job or pod lonee; did you mean prod/lone?"),
        ("", "there is no workload, job or pod with an empty name"),
    ],
)
def test_a_name_that_means_nobody_or_several_is_refused(snapshot: Snapshot, name: str, text: str) -> None:
    with pytest.raises(UsageError) as raised:
        whole_named(snapshot, name)
    assert str(raised.value) == text


@pytest.mark.parametrize("name", ["prod/left", "left", "prod/job-left-12345", "job-left-12345"])
def test_a_workload_that_is_gone_is_known_by_what_was_told_of_it(snapshot: Snapshot, name: str) -> None:
    assert subject_named(snapshot, name, ("prod/job-left-12345", "research/rlhf-2")) == "prod/job-left-12345"


def test_what_was_told_comes_before_what_is_called_so_by_now(snapshot: Snapshot) -> None:
    assert subject_named(snapshot, "research/rlhf", ("research/job-rlhf-99999",)) == "research/job-rlhf-99999"
    assert subject_named(snapshot, "Job/research/rlhf", ("research/job-rlhf-04066",)) == "research/job-rlhf-04066"
