"""Progress of batch/v1 Jobs (Kubernetes' Job controller).

A piece of work is the work of one pod; pieces are numbered like the indexes of an Indexed Job, also for non-indexed
jobs. `next_pieces`, `with_failure` and `job_ending` are pure.
"""

from collections.abc import Collection

from msgspec import Struct
from msgspec.structs import replace

from gpuconsole.model.clock import SECOND, Span
from gpuconsole.model.job import BatchRules, FailureRule, Job, SuccessRule
from gpuconsole.model.jobs.batch import added, count_numbers, lacking, shared

BACKOFF_EXCEEDED = "Job has reached the specified backoff limit"
DISRUPTION = "DisruptionTarget"


class JobEnding(Struct, frozen=True):
    """How a job ended: whether it succeeded, and the reason and message of its Complete or Failed condition."""

    succeeded: bool
    reason: str
    message: str


SUCCEEDED_ENDING = JobEnding(True, "CompletionsReached", "Reached expected number of succeeded pods")


def count_pieces(rules: BatchRules, limit: int) -> int:
    """The number of pieces of work of a job, of which at most `limit` run at once."""
    if rules.completions is None or (rules.synced and limit < rules.completions):
        return limit
    return rules.completions


def count_finished(job: Job, total: int) -> int:
    """The number of the job's pieces that are complete or failed."""
    return count_numbers(finished_indexes(job), total)


def finished_indexes(job: Job) -> tuple[str, str]:
    """The job's completed and failed pieces, as index ranges in the form of its status (`1,3-5`)."""
    return job.batch.completed, job.batch.failed


def pod_run_time(rules: BatchRules, whole: Span, at_once: int) -> Span:
    """The run time of a pod: that of its template, else the job's (`whole`) divided by its waves of `at_once` pods.

    It is a second at least: no pod starts and ends faster, and shorter waves would never finish.
    """
    if rules.pod_duration is not None:
        return rules.pod_duration
    waves = -(-count_pieces(rules, at_once) // max(1, at_once))
    return max(min(whole, SECOND), whole // max(1, waves))


def next_pieces(job: Job, rules: BatchRules, limit: int, active: Collection[int]) -> list[int]:
    """The pieces that get a pod now, lowest first; `active` pieces have one, and `limit` is the parallelism."""
    total = count_pieces(rules, limit)
    if rules.completions is None and job.batch.completed:
        return []
    room = min(limit, total - count_finished(job, total)) - len(active)
    found: list[int] = []
    for piece in lacking(finished_indexes(job), total):
        if len(found) >= room:
            break
        if piece not in active:
            found.append(piece)
    return found


def job_ending(job: Job, rules: BatchRules, limit: int, active: int) -> JobEnding | None:
    """How the job ends, if it is finished; `active` is the number of its pods that have not ended."""
    total, status = count_pieces(rules, limit), job.batch
    met = next(
        (n for n, rule in enumerate(rules.success_rules) if _is_success_rule_met(rule, status.completed, total)), None
    )
    if met is not None:
        return JobEnding(True, "SuccessPolicy", f"Matched rules at index {met}")
    if job.failures > job.backoff_limit:
        return JobEnding(False, "BackoffLimitExceeded", BACKOFF_EXCEEDED)
    failed = count_numbers((status.failed,), total)
    if rules.most_failed is not None and failed > rules.most_failed:
        message = "Job has exceeded the specified maximal number of failed indexes"
        return JobEnding(False, "MaxFailedIndexesExceeded", message)
    if rules.completions is None:
        return SUCCEEDED_ENDING if status.completed and not active else None
    if count_finished(job, total) < total:
        return None
    return JobEnding(False, "FailedIndexes", "Job has failed indexes") if failed else SUCCEEDED_ENDING


def _is_success_rule_met(rule: SuccessRule, completed: str, total: int) -> bool:
    if not rule.indexes:
        return rule.count is not None and count_numbers((completed,), total) >= rule.count
    wanted = count_numbers((rule.indexes,), total) if rule.count is None else rule.count
    return 0 < wanted <= shared(rule.indexes, completed, total)


def with_completed_piece(job: Job, piece: int) -> Job:
    """The job with one more completed piece."""
    saved = {key: span for key, span in job.batch.saved.items() if key != str(piece)}
    return replace(job, batch=replace(job.batch, completed=added(job.batch.completed, piece), saved=saved))


class Failure(Struct, frozen=True, kw_only=True):
    """The cause of a pod's failure."""

    pod: str
    piece: int
    exit_code: int | None = None
    """None if its container did not exit by itself."""
    disrupted: bool = False
    """It was evicted, preempted, or its node was lost."""


def with_failure(job: Job, rules: BatchRules, failure: Failure) -> tuple[Job, JobEnding | None]:
    """The job with a pod's failure counted; and how the job ends, if its podFailurePolicy ends it, else None."""
    hit = next(((n, r) for n, r in enumerate(rules.failure_rules) if _matches_failure(r, failure)), None)
    action = hit[1].action if hit is not None else "Count"
    if hit is not None and action == "FailJob":
        return job, JobEnding(False, "PodFailurePolicy", _failure_text(hit[0], failure))
    if action == "Ignore":
        return job, None
    if rules.limit_per_index is None:
        return replace(job, failures=job.failures + 1), None
    key = str(failure.piece)
    times = job.batch.failures.get(key, 0) + 1
    status = replace(job.batch, failures={**job.batch.failures, key: times})
    if action == "FailIndex" or times > rules.limit_per_index:
        status = replace(status, failed=added(status.failed, failure.piece))
    return replace(job, failures=job.failures + 1, batch=status), None


def _matches_failure(rule: FailureRule, failure: Failure) -> bool:
    if rule.conditions:
        return failure.disrupted and DISRUPTION in rule.conditions
    if failure.exit_code is None or failure.exit_code == 0:
        return False
    return (failure.exit_code in rule.exit_codes) is not rule.excluded


def _failure_text(rule: int, failure: Failure) -> str:
    if failure.exit_code is None:
        return f"Pod {failure.pod} has condition {DISRUPTION} matching FailJob rule at index {rule}"
    value = f"Container main for pod {failure.pod} failed with exit code {failure.exit_code}"
    return f"{value} matching FailJob rule at index {rule}"


def reclaimable_pods(job: Job, rules: BatchRules) -> int:
    """Pods that a job no longer needs because few pieces are left (Kueue 0.19 job ReclaimablePods)."""
    parallelism = job.pod_sets[0].count
    total = parallelism if rules.completions is None else rules.completions
    over = count_finished(job, total)
    return max(0, parallelism - max(total - over, 0)) if parallelism > 1 and over else 0
