"""Job (batch/v1) and JobSet (jobset.x-k8s.io): pods by parallelism and completions, and the progress of a Job.

The completion and failure rules of a Job are those of Kubernetes' Job API and its validation. Completed and failed
indexes are sets of integers in Kubernetes' notation (`0-3,7`), with which the first functions calculate.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping

from msgspec.structs import replace

from gpuconsole.model.clock import SECOND, Span, Time
from gpuconsole.model.documents.metadata import unique
from gpuconsole.model.documents.reader import INT32, Reader
from gpuconsole.model.job import BatchRules, BatchStatus, FailureRule, Job, SuccessRule
from gpuconsole.model.jobs.common import MOST_PODS, TRUE, job, phase, pod_set, pods, whole
from gpuconsole.model.jobs.workloads import DURATION, GANG
from gpuconsole.model.pod_template import PodSet

Interval = tuple[int, int]
"""First and last number, both inclusive."""


def parse_intervals(text: str) -> list[Interval]:
    """Parse a set such as `0-3,7` into its intervals; invalid or descending ones are left out."""
    return [found for part in text.split(",") if (found := _interval(part)) is not None]


def _interval(text: str) -> Interval | None:
    first, dash, last = text.partition("-")
    bounds = [first, last] if dash else [first, first]
    if not all(bound.isascii() and bound.isdigit() and len(bound) <= 10 for bound in bounds):
        return None
    low, high = map(int, bounds)
    return (low, high) if low <= high else None


def count_numbers(texts: Iterable[str], limit: int) -> int:
    """Count the numbers in 0 … `limit` - 1 that any of these texts contains."""
    found, last = 0, -1
    for low, high in sorted(pair for text in texts for pair in parse_intervals(text)):
        low, high = max(low, last + 1), min(high, limit - 1)
        if low <= high:
            found, last = found + high - low + 1, high
    return found


def lacking(texts: Iterable[str], limit: int) -> Iterator[int]:
    """Yield the numbers in 0 … `limit` - 1 that none of these texts contains, ascending."""
    first = 0
    for low, high in sorted(pair for text in texts for pair in parse_intervals(text)):
        yield from range(first, min(low, limit))
        first = max(first, high + 1)
    yield from range(first, limit)


def stands_in(number: int, texts: Iterable[str]) -> bool:
    """True if any of these texts contains the number."""
    return any(low <= number <= high for text in texts for low, high in parse_intervals(text))


def shared(one: str, other: str, limit: int) -> int:
    """Count the numbers in 0 … `limit` - 1 that both texts contain."""
    return count_numbers((one,), limit) + count_numbers((other,), limit) - count_numbers((one, other), limit)


def added(text: str, number: int) -> str:
    """Return the text of a set with one more number."""
    merged: list[Interval] = []
    for low, high in sorted([*parse_intervals(text), (number, number)]):
        if merged and low <= merged[-1][1] + 1:
            merged[-1] = merged[-1][0], max(high, merged[-1][1])
        else:
            merged.append((low, high))
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in merged)


def count_pieces(rules: BatchRules, limit: int) -> int:
    """The number of pieces of work of a job, of which at most `limit` run at once."""
    if rules.completions is None or (rules.synced and limit < rules.completions):
        return limit
    return rules.completions


def count_finished(job: Job, total: int) -> int:
    """The number of the job's pieces of work that are complete or failed."""
    return count_numbers(finished_indexes(job), total)


def finished_indexes(job: Job) -> tuple[str, str]:
    """The job's completed and failed pieces, as index ranges in the form of its status (`1,3-5`)."""
    return job.batch.completed, job.batch.failed


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


ELASTIC = "kueue.x-k8s.io/elastic-job"
SYNC_COMPLETIONS = "kueue.x-k8s.io/job-completions-equal-parallelism"
BACKOFF_LIMIT = 6
"""Default backoffLimit."""
MIN_MEMBER = "scheduling.volcano.sh/group-min-member"
"""Annotation of a Job: number of pods that Volcano starts together."""
MOST_RULES = 20
"""Most rules of a podFailurePolicy or successPolicy."""
_GANG_LABELS = ("scheduling.x-k8s.io/pod-group", "pod-group.scheduling.sigs.k8s.io")
_GANG_ANNOTATION = "scheduling.k8s.io/group-name"
_ACTIONS = ("FailJob", "FailIndex", "Ignore", "Count")


def batch_rules(spec: Reader, pods: PodSet, notes: Reader) -> BatchRules:
    """Read the rules of a Job's spec; `notes` are the annotations of the Job."""
    indexed = spec.one_of("completionMode", "NonIndexed", ("NonIndexed", "Indexed")) == "Indexed"
    per_index = spec.optional("backoffLimitPerIndex", low=0)
    if not indexed:
        _only_indexed(spec, "backoffLimitPerIndex", "maxFailedIndexes", "successPolicy")
    if per_index is None and "maxFailedIndexes" in spec:
        _refuse(spec, "backoffLimitPerIndex", "when maxFailedIndexes is specified")
    return BatchRules(
        completions=spec.optional("completions", low=0),
        indexed=indexed,
        deadline=_seconds(spec, "activeDeadlineSeconds", low=1),
        ttl=_seconds(spec, "ttlSecondsAfterFinished"),
        limit_per_index=per_index,
        most_failed=spec.optional("maxFailedIndexes", low=0),
        failure_rules=_failure_rules(spec, per_index is not None),
        success_rules=tuple(
            SuccessRule(
                indexes=rule.text("succeededIndexes", limit=65536), count=rule.optional("succeededCount", low=0)
            )
            for rule in spec.mapping("successPolicy").items("rules", MOST_RULES)
        ),
        pod_duration=_own_duration(spec),
        # Kubernetes' SetDefaults_Job: with a podFailurePolicy the default is Failed, and nothing else is valid.
        replaces_failed=spec.text("podReplacementPolicy") == "Failed" or "podFailurePolicy" in spec,
        synced=notes.text(SYNC_COMPLETIONS) in TRUE,
        together=_is_gang(pods, notes),
    )


def backoff_limit(spec: Reader) -> int:
    """Return the number of failures that fail a Job; unlimited if each index has its own limit."""
    return spec.number("backoffLimit", INT32 if "backoffLimitPerIndex" in spec else BACKOFF_LIMIT, low=0)


def batch_status(status: Reader, rules: BatchRules) -> BatchStatus:
    """Read the progress of a running Job; without indexes only the number of completions is known."""
    completed = status.text("completedIndexes", limit=65536)
    succeeded = status.number("succeeded", 0, low=0)
    if not rules.indexed and not parse_intervals(completed) and succeeded:
        completed = f"0-{succeeded - 1}" if succeeded > 1 else "0"
    return BatchStatus(
        completed=completed,
        failed=status.text("failedIndexes", limit=65536),
        # The Job controller removes it when the Job is suspended.
        since=status.moment("startTime") if rules.deadline is not None else None,
    )


def _seconds(place: Reader, key: str, low: int = 0) -> Span | None:
    seconds = place.optional(key, low=low)
    return None if seconds is None else seconds * SECOND


def _own_duration(spec: Reader) -> Span | None:
    """Return the duration of one pod by its template's annotation."""
    span = spec.down("template", "metadata", "annotations").span(DURATION)
    return span if span is not None and span > 0 else None


def _is_gang(pods: PodSet, notes: Reader) -> bool:
    """True for gang-scheduled pods: they name a PodGroup, or the Job's annotations say so."""
    template = pods.template
    named = any(template.labels.get(label) for label in _GANG_LABELS) or template.annotations.get(_GANG_ANNOTATION)
    return bool(named) or notes.text(GANG) in TRUE or notes.text(ELASTIC) == "true" or min_member(notes) is not None


def min_member(notes: Reader) -> int | None:
    """Return the minimum number of pods that Volcano starts together, by the Job's annotation; None for 1 or less."""
    text = notes.text(MIN_MEMBER)
    least = int(text) if text.isascii() and text.isdigit() and len(text) <= 6 else 0
    return least if least > 1 else None


def _only_indexed(spec: Reader, *keys: str) -> None:
    for key in keys:
        if key in spec:
            problem = f"requires indexed completion mode: {key} says something of indexes"
            spec.report.refused(spec.at(key), problem, "write completionMode: Indexed, or drop it", "not-indexed")


def _refuse(spec: Reader, key: str, when: str) -> None:
    spec.report.refused(spec.at(key), f"{key} must be specified {when}", "set it", "required")


def _failure_rules(spec: Reader, per_index: bool) -> tuple[FailureRule, ...]:
    policy = spec.mapping("podFailurePolicy")
    if policy.value and spec.down("template", "spec").raw("restartPolicy") not in (None, "Never"):
        problem = 'only "Never" is supported when podFailurePolicy is specified'
        path = spec.at("template", "spec", "restartPolicy")
        spec.report.refused(path, problem, "write restartPolicy: Never", "restart-policy")
    return tuple(_failure_rule(rule, per_index) for rule in policy.items("rules", MOST_RULES))


def _failure_rule(rule: Reader, per_index: bool) -> FailureRule:
    rule.only("action", "onExitCodes", "onPodConditions")
    action = rule.one_of("action", "", _ACTIONS)
    if action == "FailIndex" and not per_index:
        problem = "requires the backoffLimitPerIndex to be set"
        rule.report.refused(rule.at("action"), problem, "set backoffLimitPerIndex, or take another action", "bad-value")
    codes = rule.mapping("onExitCodes")
    if ("onExitCodes" in rule) is ("onPodConditions" in rule):
        problem = "specifying one of OnExitCodes and OnPodConditions is required, and not both"
        rule.report.refused(rule.path, problem, "write either onExitCodes or onPodConditions", "one-of")
    values = codes.raw("values")
    return FailureRule(
        action=action,
        exit_codes=tuple(code for code in values if isinstance(code, int)) if isinstance(values, list) else (),
        excluded=codes.one_of("operator", "In", ("In", "NotIn")) == "NotIn",
        conditions=tuple(condition.text("type") for condition in rule.items("onPodConditions", MOST_RULES)),
    )


MIN_PARALLELISM = "kueue.x-k8s.io/job-min-parallelism"
COMPLETION_INDEX = "batch.kubernetes.io/job-completion-index"
JOB_INDEX = "jobset.sigs.k8s.io/job-index"
_JOB_FIELDS = (
    *("activeDeadlineSeconds", "backoffLimit", "backoffLimitPerIndex", "completionMode", "completions", "managedBy"),
    *("manualSelector", "maxFailedIndexes", "parallelism", "podFailurePolicy", "podReplacementPolicy", "selector"),
    *("successPolicy", "suspend", "template", "ttlSecondsAfterFinished"),
)
_MADE_LABELS = ("job-name", "controller-uid", "batch.kubernetes.io/controller-uid")
_JOBSET_FIELDS = (
    *("coordinator", "failurePolicy", "managedBy", "network", "replicatedJobs", "startupPolicy", "successPolicy"),
    *("suspend", "ttlSecondsAfterFinished", "volumeClaimPolicies"),
)


def batch_job(reader: Reader, now: Time) -> Job:
    """Read a Job: min(parallelism, completions) pods at once (Kueue 0.19 job integration podsCount)."""
    spec, notes = reader.mapping("spec"), reader.down("metadata", "annotations")
    status, suspended = reader.mapping("status"), spec.flag("suspend")
    pods = job_pods(spec, notes)
    rules = batch_rules(spec, pods, notes)
    return job(
        reader,
        now,
        "Job",
        (pods,),
        rules=rules,
        batch=batch_status(status, rules),
        # It does not include failures that the podFailurePolicy ignores.
        failures=status.number("failed", 0, low=0),
        min_available=min_member(notes),
        suspended=suspended,
        backoff_limit=backoff_limit(spec),
        phase=phase(reader, suspended),
    )


def job_pods(spec: Reader, notes: Reader) -> PodSet:
    """Return the pods that a Job runs at once; `notes` are the annotations of the Job."""
    spec.only(*_JOB_FIELDS)
    count = _pods_at_once(spec)
    pods = pod_set(spec, "main", count, restarts=True, min_count=_min_count(notes, count), index=COMPLETION_INDEX)
    if not any(label in pods.template.labels for label in _MADE_LABELS):
        return pods
    return replace(pods, template=replace(pods.template, labels=clean_labels(pods.template.labels)))


def clean_labels(labels: Mapping[str, str]) -> dict[str, str]:
    """Remove the labels that the Job controller adds to a pod template, except the Job's name."""
    return {key: value for key, value in labels.items() if key not in _MADE_LABELS}


def _pods_at_once(spec: Reader) -> int:
    parallelism = pods(spec, "parallelism")
    completions = spec.optional("completions", low=0)
    # If both are missing, the API server sets both to 1 (batch/v1 SetDefaults_Job).
    if completions is None and spec.raw("completionMode") == "Indexed" and spec.raw("parallelism") is not None:
        spec.report.refused(
            spec.at("completions"), "completions is required when completionMode is Indexed", "set it", "required"
        )
    return parallelism if completions is None else min(parallelism, completions)


def _min_count(notes: Reader, count: int) -> int | None:
    if MIN_PARALLELISM not in notes:
        return None
    return whole(notes, MIN_PARALLELISM, 1, max(1, count - 1), f"should be between 0 and {count - 1}")


def jobset(reader: Reader, now: Time) -> Job:
    """Read a JobSet: one pod set per replicated job, with replicas × min(parallelism, completions) pods."""
    spec = reader.mapping("spec")
    spec.only(*_JOBSET_FIELDS)
    pod_sets = replicated_jobs(spec)
    if not pod_sets:
        spec.report.refused(
            spec.at("replicatedJobs"), "replicatedJobs is empty: there is nothing to run", "add a job", "required"
        )
    suspended = spec.flag("suspend")
    backoff = spec.mapping("failurePolicy").number("maxRestarts", 0, low=0)
    state = phase(reader, suspended)
    return job(reader, now, "JobSet", pod_sets, suspended=suspended, backoff_limit=backoff, phase=state)


def replicated_jobs(spec: Reader) -> tuple[PodSet, ...]:
    """Return the pod sets of a JobSet's spec.

    A template without a restartPolicy gets OnFailure (JobSet's mutating webhook, jobset_webhook.go Default); the
    trainer's runtimes become JobSets, too.
    """
    pod_sets = tuple(_replicated(place) for place in spec.items("replicatedJobs", 1000))
    unique(spec, "replicatedJobs", [pods.name for pods in pod_sets], "name", fatal=True)
    return pod_sets


def _replicated(place: Reader) -> PodSet:
    place.only("name", "template", "replicas", "groupName", "dependsOn")
    replicas = pods(place, "replicas")
    inner = place.down("template", "spec")
    inner.only(*_JOB_FIELDS)
    count = _pods_at_once(inner) * replicas
    if count > MOST_PODS:
        place.report.error(
            place.at("replicas"),
            f"{count} pods are more than can be simulated",
            f"ask for at most {MOST_PODS}",
            "too-many-pods",
        )
    return pod_set(
        inner,
        place.required("name"),
        min(count, MOST_PODS),
        restarts=True,
        default_restart_policy="OnFailure",
        index=COMPLETION_INDEX,
        subgroup=JOB_INDEX,
        subgroups=replicas,
    )
