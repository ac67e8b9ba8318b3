"""Completion and failure rules of a batch/v1 Job, and its progress (Kubernetes' Job API and its validation)."""

from gpuconsole.model.clock import SECOND, Span
from gpuconsole.model.documents.reader import INT32, Reader
from gpuconsole.model.intervals import parse_intervals
from gpuconsole.model.job_rules import BatchRules, BatchStatus, FailureRule, SuccessRule
from gpuconsole.model.jobs.labels import DURATION, GANG
from gpuconsole.model.jobs.topology import TRUE
from gpuconsole.model.pod_sets import PodSet

ELASTIC = "kueue.x-k8s.io/elastic-job"
SYNC_COMPLETIONS = "kueue.x-k8s.io/job-completions-equal-parallelism"
BACKOFF_LIMIT = 6
MIN_MEMBER = "scheduling.volcano.sh/group-min-member"
MOST_RULES = 20
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
