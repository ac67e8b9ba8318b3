"""The rules of a batch/v1 Job by themselves: what comes next, what a failure counts, when it is over."""

from typing import Any

import pytest
from msgspec import Struct
from msgspec.structs import replace

from gpuconsole.model.clock import HOUR, MINUTE, SECOND
from gpuconsole.model.job import BatchRules, BatchStatus, FailureRule, Job, SuccessRule
from gpuconsole.model.jobs.batch import (
    added,
    count_numbers,
    count_pieces,
    lacking,
    next_pieces,
    parse_intervals,
    shared,
    stands_in,
)
from gpuconsole.model.pod_template import PodSet
from gpuconsole.sim.controllers.work import (
    SUCCEEDED_ENDING,
    Failure,
    JobEnding,
    job_ending,
    pod_run_time,
    reclaimable_pods,
    with_completed_piece,
    with_failure,
)


def job(at_once: int = 2, **status: Any) -> Job:
    return Job(name="j", pod_sets=(PodSet(count=at_once),), batch=BatchStatus(**status))


class Next(Struct):
    rules: BatchRules
    status: dict[str, Any]
    active: set[int]
    want: list[int]
    limit: int = 2


NEXT = {
    "as many as may run at once": Next(BatchRules(completions=5), {}, set(), [0, 1]),
    "beside those that run": Next(BatchRules(completions=5), {}, {0}, [1]),
    "those that are done are left out": Next(BatchRules(completions=5), {"completed": "0,2-3"}, set(), [1, 4]),
    "those that failed for good, too": Next(BatchRules(completions=5), {"failed": "0", "completed": "1"}, {2}, [3]),
    "no more than are left": Next(BatchRules(completions=5), {"completed": "0-3"}, set(), [4]),
    "fewer pods were admitted": Next(BatchRules(completions=5), {}, set(), [0], limit=1),
    "without completions as many as run at once": Next(BatchRules(), {}, set(), [0, 1]),
    "and none after the first success": Next(BatchRules(), {"completed": "0"}, set(), []),
    "none where pieces follow what was admitted": Next(
        BatchRules(completions=5, synced=True), {"completed": "0-1"}, set(), []
    ),
}


@pytest.mark.parametrize("name", NEXT)
def test_which_pieces_come_next(name: str) -> None:
    case = NEXT[name]
    assert next_pieces(job(**case.status), case.rules, case.limit, case.active) == case.want


ENDS: dict[str, tuple[BatchRules, dict[str, Any], int, JobEnding | None]] = {
    "all pieces are done": (BatchRules(completions=3), {"completed": "0-2"}, 0, SUCCEEDED_ENDING),
    "some are not": (BatchRules(completions=3), {"completed": "0-1"}, 0, None),
    "nothing is asked for": (BatchRules(completions=0), {}, 0, SUCCEEDED_ENDING),
    "without completions the last pod ends it": (BatchRules(), {"completed": "0"}, 0, SUCCEEDED_ENDING),
    "which still runs": (BatchRules(), {"completed": "0"}, 1, None),
    "without completions and without a success": (BatchRules(), {}, 0, None),
    "some indexes failed for good": (
        BatchRules(completions=3),
        {"completed": "0-1", "failed": "2"},
        0,
        JobEnding(False, "FailedIndexes", "Job has failed indexes"),
    ),
    "more than may fail": (
        BatchRules(completions=9, most_failed=1),
        {"failed": "2-3"},
        0,
        JobEnding(
            False,
            "MaxFailedIndexesExceeded",
            "Job has exceeded the specified maximal number of failed indexes",
        ),
    ),
    "the first rule that is met decides": (
        BatchRules(completions=9, success_rules=(SuccessRule(indexes="8"), SuccessRule(indexes="0-3", count=2))),
        {"completed": "1-2"},
        2,
        JobEnding(True, "SuccessPolicy", "Matched rules at index 1"),
    ),
    "a rule with more indexes than there are counts those that there are": (
        BatchRules(completions=3, success_rules=(SuccessRule(indexes="1-9999999999"),)),
        {"completed": "1-2"},
        0,
        JobEnding(True, "SuccessPolicy", "Matched rules at index 0"),
    ),
    "a rule whose indexes nobody can read is never met": (
        BatchRules(completions=3, success_rules=(SuccessRule(indexes="x"),)),
        {},
        0,
        None,
    ),
}


@pytest.mark.parametrize("name", ENDS)
def test_when_a_job_is_over(name: str) -> None:
    rules, status, active, want = ENDS[name]
    assert job_ending(job(**status), rules, 2, active) == want


def test_failures_beyond_the_limit_end_it() -> None:
    tired = replace(job(), failures=7)
    want = JobEnding(False, "BackoffLimitExceeded", "Job has reached the specified backoff limit")
    assert job_ending(tired, BatchRules(completions=3), 2, 2) == want
    assert job_ending(replace(tired, failures=6), BatchRules(completions=3), 2, 2) is None


EVICTED = Failure(pod="n/p", piece=1, disrupted=True)
CRASHED = Failure(pod="n/p", piece=1, exit_code=42)
IGNORE = FailureRule(action="Ignore", conditions=("DisruptionTarget",))
FATAL = FailureRule(action="FailJob", exit_codes=(42, 43))
OTHERS = FailureRule(action="FailJob", exit_codes=(42, 43), excluded=True)


def test_what_a_failure_counts() -> None:
    plain = job()
    counted = replace(plain, failures=1)
    assert with_failure(plain, BatchRules(), CRASHED) == (counted, None)
    assert with_failure(plain, BatchRules(), EVICTED) == (counted, None)
    assert with_failure(plain, BatchRules(failure_rules=(IGNORE,)), EVICTED) == (plain, None)
    assert with_failure(plain, BatchRules(failure_rules=(IGNORE,)), CRASHED) == (counted, None)
    assert with_failure(plain, BatchRules(failure_rules=(OTHERS,)), CRASHED) == (counted, None)
    message = "Container main for pod n/p failed with exit code 42 matching FailJob rule at index 1"
    verdict = JobEnding(False, "PodFailurePolicy", message)
    assert with_failure(plain, BatchRules(failure_rules=(IGNORE, FATAL)), CRASHED) == (plain, verdict)
    fatal_eviction = FailureRule(action="FailJob", conditions=("DisruptionTarget",))
    message = "Pod n/p has condition DisruptionTarget matching FailJob rule at index 0"
    verdict = JobEnding(False, "PodFailurePolicy", message)
    assert with_failure(plain, BatchRules(failure_rules=(fatal_eviction,)), EVICTED) == (plain, verdict)


def test_failures_of_an_index() -> None:
    own = BatchRules(indexed=True, completions=3, limit_per_index=1)
    once, _ = with_failure(job(), own, CRASHED)
    assert once.batch == BatchStatus(failures={"1": 1})
    twice, _ = with_failure(once, own, CRASHED)
    assert twice.batch == BatchStatus(failures={"1": 2}, failed="1")
    lost = replace(own, failure_rules=(FailureRule(action="FailIndex", exit_codes=(42,)),))
    at_once, _ = with_failure(job(), lost, CRASHED)
    assert at_once.batch.failed == "1"


def test_a_success_forgets_what_was_saved_of_that_piece() -> None:
    before = job(saved={"0": MINUTE, "1": MINUTE}, completed="3")
    assert with_completed_piece(before, 1).batch == BatchStatus(saved={"0": MINUTE}, completed="1,3")


def test_pods_share_the_time_of_the_whole_job_wave_after_wave() -> None:
    assert pod_run_time(BatchRules(completions=5), HOUR, 2) == 20 * MINUTE
    assert pod_run_time(BatchRules(completions=4), HOUR, 4) == HOUR
    assert pod_run_time(BatchRules(), HOUR, 4) == HOUR
    assert pod_run_time(BatchRules(completions=5, pod_duration=MINUTE), HOUR, 2) == MINUTE
    assert count_pieces(BatchRules(completions=5, synced=True), 3) == 3


def test_no_share_is_shorter_than_a_second_unless_the_whole_job_is() -> None:
    assert pod_run_time(BatchRules(completions=2**31 - 1), HOUR, 4) == SECOND
    assert pod_run_time(BatchRules(completions=2**31 - 1), SECOND // 2, 4) == SECOND // 2


def test_what_is_given_back() -> None:
    rules = BatchRules(completions=6)
    assert [reclaimable_pods(job(4, completed=done), rules) for done in ("", "0", "0-1", "0-2", "0-5")] == [
        0,
        0,
        0,
        1,
        4,
    ]
    assert reclaimable_pods(job(1, completed="0"), BatchRules(completions=1)) == 0
    assert reclaimable_pods(job(4, completed="0", failed="1-3"), rules) == 2


def test_sets_of_numbers() -> None:
    assert parse_intervals("0-3,7,9-8,x,,5-") == [(0, 3), (7, 7)]
    assert count_numbers(("0-3,7", "2-8"), 8) == 8
    assert count_numbers(("10-19",), 10) == 0
    assert [added("", 4), added("0-3,7", 4), added("0-3,7", 8), added("0-3", 2), added("0,2", 1)] == [
        *("4", "0-4,7", "0-3,7-8", "0-3", "0-2"),
    ]
    assert list(lacking(("5-6", "0-1,3,6"), 9)) == [2, 4, 7, 8]
    assert list(lacking(("0-9999999999",), 4)) == []
    assert [stands_in(number, ("0-3", "7")) for number in (3, 5, 7)] == [True, False, True]
    assert [shared("0-3,7", "2-8", 9), shared("0-3", "5", 9), shared("0-9999999999", "3-4", 4)] == [3, 0, 1]
