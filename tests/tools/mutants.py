"""Break the rules one by one and see a test turn red: `make mutants`.

Each mutant is a named edit of one line of a rule. It is applied to a copy of the project; the tests named beside it
must then fail, without any data from outside the project. A mutant whose line is not found, or which survives, fails
the run.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
COPIED = ("gpuconsole", "tests", "fixtures", "themes", "pyproject.toml")


class Mutant(NamedTuple):
    """An edit: in `file`, `old` (which occurs exactly once) becomes `new`; one of `tests` has to notice."""

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]


KUEUE = "gpuconsole/scheduling/kueue"
KUBE = "gpuconsole/scheduling/kube"
VOLCANO = "gpuconsole/scheduling/volcano"
KAI = "gpuconsole/scheduling/kai"
CONTROLLERS = "gpuconsole/sim/controllers"
TIMED_TESTS = ("tests/scheduling/kueue/test_timed_conformance.py",)
KUEUE_TESTS = ("tests/scheduling/kueue",)
QUOTA_RELEASE_TESTS = ("tests/sim/test_quota_release.py",)
INADMISSIBLE_TESTS = ("tests/insight/test_inadmissible.py",)
ALERT_TESTS = ("tests/insight/test_alerting.py", "tests/services/test_alerting.py")
OBJECT_TESTS = ("tests/insight/test_ownership.py", "tests/ui/test_object_lists.py")
SHADOW_TESTS = ("tests/insight/test_shadow.py",)
QUIET_TESTS = ("tests/scheduling/kueue/test_inadmissible_skip.py",)
KUBE_TESTS = ("tests/scheduling/kube",)
VOLCANO_TESTS = ("tests/scheduling/volcano",)
KAI_TESTS = ("tests/scheduling/kai",)
PACKING_TESTS = ("tests/scheduling/kube/test_packing.py",)
SIM_TESTS = ("tests/sim",)
COST = "gpuconsole/insight/cost"
COST_TESTS = ("tests/insight/test_cost_allocation.py",)
STORE_TESTS = ("tests/store",)
CHANGE_LOG_TESTS = ("tests/model/test_change_log.py",)

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "shadow: a begin forgets what was found before it",
        "gpuconsole/services/shadow.py",
        "self.report, self.day = report, (self.day + news).day_before(report.until)",
        "self.report, self.day = report, news.day_before(report.until)",
        ("tests/services/test_shadow.py",),
    ),
    Mutant(
        "shadow: the history adds no later decisions to an hour",
        "gpuconsole/store/writer.py",
        '" decisions = decisions + excluded.decisions, agreed = agreed + excluded.agreed,"\n    " unknown',
        '" decisions = decisions + excluded.decisions, agreed = agreed,"\n    " unknown',
        ("tests/store/test_kill.py",),
    ),
    Mutant(
        "filters: `and` binds no more tightly than `or`",
        "gpuconsole/ui/field_filter.py",
        "found = Disjunction(found, self._conjunction(depth))",
        "found = Disjunction(found, self._operand(depth))",
        ("tests/ui/test_field_filter.py",),
    ),
    Mutant(
        "filters: a row without a value passes a comparison of numbers",
        "gpuconsole/ui/field_filter.py",
        'missing = wanted.operator == "!="',
        'missing = wanted.operator != "="',
        ("tests/ui/test_field_filter.py",),
    ),
    Mutant(
        "tables: a sort is lost when the columns are made anew",
        "gpuconsole/ui/widgets/grid.py",
        "self._rows.sorting = (same, sorting[1]) if same is not None else None",
        "self._rows.sorting = None",
        ("tests/ui/test_grid.py",),
    ),
    Mutant(
        "tables: a preview tells that a workload is stopped which is inactive already",
        "gpuconsole/ui/screens/workload_actions.py",
        "if not workload.active:\n            return Effect",
        "if False:\n            return Effect",
        ("tests/ui/test_workloads_screen.py",),
    ),
    Mutant(
        "alerts: an alert fires at once, whatever its rule waits",
        "gpuconsole/insight/health/alerting.py",
        "if alert.state is AlertState.PENDING and now - alert.since >= wait:",
        "if alert.state is AlertState.PENDING:",
        ALERT_TESTS,
    ),
    Mutant(
        "objects: who submitted a workload is read from annotations before labels",
        "gpuconsole/insight/index/object_lists.py",
        "places = chain((one.labels for one in owners), templates, (one.annotations for one in owners))",
        "places = chain((one.annotations for one in owners), templates, (one.labels for one in owners))",
        OBJECT_TESTS,
    ),
    Mutant(
        "objects: pods under a workload are shown a second time under its job",
        "gpuconsole/insight/index/ownership.py",
        "if pod.job == key and pod.workload not in snapshot.workloads:",
        "if pod.job == key:",
        OBJECT_TESTS,
    ),
    Mutant(
        "objects: a name is linked to the object whose page it is on",
        "gpuconsole/ui/describe.py",
        "if target is None or target.key == own or",
        "if target is None or",
        ("tests/ui/test_links.py",),
    ),
    Mutant(
        "alerts: a notification that failed is not sent again",
        "gpuconsole/services/alerting.py",
        "            self.failed = clean(str(error), 200)\n            return False",
        "            self.failed = clean(str(error), 200)",
        ALERT_TESTS,
    ),
    Mutant(
        "alerts: a counter that begins again goes on from what it had",
        "gpuconsole/insight/health/alerting.py",
        "if points and value < points[-1][1]:",
        "if False:",
        ALERT_TESTS,
    ),
    Mutant(
        "web: a page of another site may open a console",
        "gpuconsole/cli/web.py",
        "if _site(origin) != _site(self.public_url):",
        "if False:",
        ("tests/cli/test_web.py",),
    ),
    Mutant(
        "recording: labels that no rule reads are saved",
        "gpuconsole/model/document_redaction.py",
        "return kind in _LABELLED or VOCABULARY.search(label) is not None",
        "return True",
        ("tests/backends/kube/test_recording_writer.py",),
    ),
    Mutant(
        "recording: an interrupted watch is not told",
        "gpuconsole/backends/kube/recording_writer.py",
        'self._write({"t": self._seconds(time), "lost": kind})',
        "pass",
        ("tests/backends/kube/test_recording_writer.py",),
    ),
    Mutant(
        "shadow: the preemptor of a victim does not count",
        "gpuconsole/insight/forecast/shadow.py",
        "return ObservedDecision(DecisionKind.PREEMPTED, decision.workload, outcome)",
        'return ObservedDecision(DecisionKind.PREEMPTED, decision.workload, ("uid-other", outcome[1]))',
        SHADOW_TESTS,
    ),
    Mutant(
        "shadow: only the state just before a decision is tried",
        "gpuconsole/insight/forecast/shadow.py",
        "states += islice(self._states.newest_first(now), MOST_STATES)",
        "states += []",
        SHADOW_TESTS,
    ),
    Mutant(
        "shadow: decisions that depend on what was before its begin are disagreements",
        "gpuconsole/insight/forecast/shadow.py",
        "elif self._budget.is_spent or self._is_without_history(decision.workload):",
        "elif self._budget.is_spent:",
        SHADOW_TESTS,
    ),
    Mutant(
        "shadow: all changes since the begin are kept",
        "gpuconsole/insight/forecast/shadow.py",
        "return is_old and (changes_state or len(last.events) >= MOST_REPLAYED)",
        "return is_old and changes_state",
        SHADOW_TESTS,
    ),
    Mutant(
        "history: what was written while a question was asked is counted twice",
        "gpuconsole/store/queries.py",
        "for at, n in enumerate(block.numbers) if n >= first]",
        "for at, n in enumerate(block.numbers) if n > 2**62]",
        STORE_TESTS,
    ),
    Mutant(
        "history: a repeated pending event that was written is not counted",
        "gpuconsole/store/recorder.py",
        "self._repeats[number] = (counted.count, counted.last_time)",
        "pass",
        STORE_TESTS,
    ),
    Mutant(
        "history: a pending event is repeated although the workload was admitted meanwhile",
        "gpuconsole/store/recorder.py",
        "self._pending.pop(subject, None)",
        "pass",
        STORE_TESTS,
    ),
    Mutant(
        "history: costs of the same hour replace each other",
        "gpuconsole/store/writer.py",
        "{one} = {one} + excluded.{one}",
        "{one} = excluded.{one}",
        STORE_TESTS,
    ),
    Mutant(
        "history: changes after lost ones are appended to the old checkpoint",
        "gpuconsole/store/recorder.py",
        "if change is not None and not self._changes_lost:",
        "if change is not None:",
        STORE_TESTS,
    ),
    Mutant(
        "retention: a simulation is as old as its own clock says",
        "gpuconsole/store/retention.py",
        "if mode != LIVE:",
        "if False:",
        STORE_TESTS,
    ),
    Mutant(
        "retention: the checkpoint that newer changes need is deleted",
        "gpuconsole/store/retention.py",
        " where later.recording = checkpoints.recording and later.id > checkpoints.id),",
        " where later.recording = checkpoints.recording and later.id >= checkpoints.id),",
        STORE_TESTS,
    ),
    Mutant(
        "retention: texts that kept costs use are deleted",
        "gpuconsole/store/retention.py",
        "where kept = 0 and used < ?",
        "where used < ?",
        STORE_TESTS,
    ),
    Mutant(
        "change log: changes at the end of a batch and later ones are combined",
        "gpuconsole/model/change_log.py",
        "if self._state.time > self._until else _AT_LAST_END",
        "",
        CHANGE_LOG_TESTS,
    ),
    Mutant(
        "change log: a deleted object that comes again keeps its place",
        "gpuconsole/model/change_log.py",
        "if at is not None and isinstance(self._events[at], Applied):",
        "if at is not None:",
        CHANGE_LOG_TESTS,
    ),
    Mutant(
        "change log: changes after the requested time are applied",
        "gpuconsole/model/change_log.py",
        "if event.time > at:",
        "if False:",
        CHANGE_LOG_TESTS,
    ),
    Mutant(
        "a head that keeps capacity for itself is passed over",
        f"{KUEUE}/nomination_cache.py",
        "keeps_nothing = can_always_reclaim(rules) or not rules.queue.cohort",
        "keeps_nothing = True",
        QUIET_TESTS,
    ),
    Mutant(
        "heads that were parked together stay parked when something happens",
        f"{KUEUE}/state.py",
        "queue.mark_classes_admissible(request for request, _, _ in self.heads[self.counted :])",
        "pass",
        QUIET_TESTS,
    ),
    Mutant(
        "once a quota has changed nothing is kept of what becomes of heads",
        f"{KUEUE}/context.py",
        "fresh.shared.has_forks = self.shared.has_forks",
        "fresh.shared.has_forks = False",
        QUIET_TESTS,
    ),
    Mutant(
        "lanes that are opened again are looked for only behind those that were passed",
        f"{KUEUE}/cluster_queue.py",
        "        inadmissible_classes, self.inadmissible_hashes = self.inadmissible_hashes, {}"
        "\n        self._inadmissible_prefix.clear()",
        "        inadmissible_classes, self.inadmissible_hashes = self.inadmissible_hashes, {}",
        ("tests/scheduling/kueue/test_equivalence_queue.py",),
    ),
    Mutant(
        "whoever comes to hold quota is evicted first",
        f"{KUEUE}/workload_index.py",
        "at = bisect_right(ranked, holding.rank, key=_rank)",
        "at = 0",
        ("tests/scheduling/kueue/test_workload_index.py",),
    ),
    Mutant(
        "a queue that borrows nothing hopes for its own workloads only",
        f"{KUEUE}/preemption/search.py",
        "    return all(\n        usage.usage_of(at, column) >=",
        "    return any(\n        usage.usage_of(at, column) <",
        ("tests/scheduling/kueue/test_preemption_upper_bound.py",),
    ),
    Mutant(
        "no fill-back: victims that are not needed stay victims",
        f"{KUEUE}/preemption/search.py",
        "for index in range(len(targets) - 2, -1, -1):",
        "for index in range(0):",
        KUEUE_TESTS,
    ),
    Mutant(
        "borrowingLimit ignored",
        f"{KUEUE}/quota_tree.py",
        "self.ceiling[at] = self.subtree[at] - self.local[at] + limit",
        "self.ceiling[at] = None",
        KUEUE_TESTS,
    ),
    Mutant(
        "lendingLimit ignored",
        f"{KUEUE}/quota_tree.py",
        "self.local[at] = max(0, self.subtree[at] - quota.lending_limit)",
        "self.local[at] = 0",
        KUEUE_TESTS,
    ),
    Mutant(
        "maximum capacity ignored: what can never fit waits like the rest",
        f"{KUEUE}/flavor_assigner.py",
        "if total > tree.potential[at]:",
        "if total > 2**62:",
        KUEUE_TESTS,
    ),
    Mutant(
        "oldest victim instead of newest",
        f"{KUEUE}/workloads.py",
        "rank=(not evicted, priority, -since, workload.uid),",
        "rank=(not evicted, priority, since, workload.uid),",
        KUEUE_TESTS,
    ),
    Mutant(
        "victims of the own queue before those of others",
        f"{KUEUE}/preemption/classical.py",
        "everything = [*hierarchical, *priority, *same_queue]",
        "everything = [*same_queue, *hierarchical, *priority]",
        KUEUE_TESTS,
    ),
    Mutant(
        "LowerPriority takes equals too",
        f"{KUEUE}/preemption/search.py",
        "return lambda candidate: candidate.priority < mine\n",
        "return lambda candidate: candidate.priority <= mine\n",
        KUEUE_TESTS,
    ),
    Mutant(
        "reclaim from queues within their nominal quota",
        f"{KUEUE}/preemption/classical.py",
        "if node in excluded_nodes or search.usage.is_within_nominal(node, search.columns):",
        "if node in excluded_nodes:",
        KUEUE_TESTS,
    ),
    Mutant(
        "the borrowing threshold of priorities ignored",
        f"{KUEUE}/preemption/classical.py",
        "if threshold is not None and holding.priority > threshold:",
        "if threshold is not None and holding.priority > 2**31:",
        KUEUE_TESTS,
    ),
    Mutant(
        "no capacity kept for a head that finds nobody to preempt",
        f"{KUEUE}/processing.py",
        "if not can_always_reclaim(entry.rules) or (context.gates.preemptors_first and entry.preemptor):",
        "if False:",
        KUEUE_TESTS,
    ),
    Mutant(
        "two heads take the same victim",
        f"{KUEUE}/processing.py",
        "if _overlaps(entry, chosen_victims):",
        "if False:",
        KUEUE_TESTS,
    ),
    Mutant(
        "pods that no topology placed take no room",
        f"{KUEUE}/topology/layout.py",
        "return ((node, uses, -1),)",
        "return ()",
        KUEUE_TESTS,
    ),
    Mutant(
        "balanced placement takes the lowest threshold",
        f"{KUEUE}/topology/layout.py",
        "judged[0] > best or",
        "judged[0] < best or",
        KUEUE_TESTS,
    ),
    Mutant(
        "nodes that pods prefer do not count",
        f"{KUEUE}/topology/domains.py",
        "score += counts.scores[child]",
        "score += 0",
        KUEUE_TESTS,
    ),
    Mutant(
        "who waits for the victims of others is parked as if it did not fit",
        f"{KUEUE}/processing.py",
        "deferred = entry.assignment.mode == FlavorAssignmentMode.FIT",
        "deferred = False",
        KUEUE_TESTS,
    ),
    Mutant(
        "priority ignored in the queue",
        f"{KUEUE}/pod_resources.py",
        "self.order: Order = (-self.priority, self.timestamp, workload.uid)",
        "self.order: Order = (0, self.timestamp, workload.uid)",
        KUEUE_TESTS,
    ),
    Mutant(
        "StrictFIFO lets later workloads pass",
        f"{KUEUE}/cluster_queue.py",
        "at_once = reason is not RequeueReason.NAMESPACE_MISMATCH if self._strict else reason in _RETRIED_AT_ONCE",
        "at_once = reason in _RETRIED_AT_ONCE",
        KUEUE_TESTS,
    ),
    Mutant(
        "a wake-up reaches only the queue in which something happened",
        f"{KUEUE}/state.py",
        "root = tree.root(node)\n        return",
        "root = node\n        return",
        KUEUE_TESTS,
    ),
    Mutant(
        "a workload that others of its cycle came before stays inadmissible in forks of a live cluster",
        f"{KUEUE}/observation.py",
        "elif is_retried_next_cycle(new.message):",
        "elif False:",
        INADMISSIBLE_TESTS,
    ),
    Mutant(
        "a workload whose backoff has ended stays inadmissible in forks of a live cluster",
        f"{KUEUE}/session.py",
        "inadmissible=tuple(key for key in queue.inadmissible if key not in active)",
        "inadmissible=queue.inadmissible",
        INADMISSIBLE_TESTS,
    ),
    Mutant(
        "the forecast does not know whose victims are terminating",
        f"{KUEUE}/observation.py",
        "session.set_preemptors(sorted(self._preempting, key=self._preempted_at))",
        "session.set_preemptors(())",
        INADMISSIBLE_TESTS,
    ),
    Mutant(
        "a workload that got its quota in this cycle may be preempted in it",
        f"{KUEUE}/context.py",
        "return self._held_by(name) if begin is None else begin",
        "return self._held_by(name)",
        KUEUE_TESTS,
    ),
    Mutant(
        "workloads of inactive queues may be preempted",
        f"{KUEUE}/context.py",
        "if rules is None or not rules.active:",
        "if rules is None:",
        TIMED_TESTS,
    ),
    Mutant(
        "a workload is queued at once though it has to wait",
        f"{KUEUE}/workloads.py",
        "if isinstance(old, Holding) and _backs_off(workload, state.now):",
        "if False:",
        TIMED_TESTS,
    ),
    Mutant(
        "a cycle that is blocked ends",
        f"{KUEUE}/scheduler.py",
        "if entry.status is EntryStatus.BLOCKED and stays_open:",
        "if False:",
        TIMED_TESTS,
    ),
    Mutant(
        "taints of flavors ignored",
        f"{KUEUE}/flavor_assigner.py",
        "if taint.keeps_pods_away and not any(",
        "if False and not any(",
        KUEUE_TESTS,
    ),
    Mutant(
        "victims are given up too early: the last one of a queue may leave it below its quota",
        f"{KUEUE}/preemption/search.py",
        "min(used, quota + 1 - max(sizes))",
        "min(used, quota)",
        KUEUE_TESTS,
    ),
    Mutant(
        "weights of fair sharing ignored",
        f"{KUEUE}/preemption/fair_sharing.py",
        "return False, self.ratio / self.weight if self.ratio else 0.0",
        "return False, self.ratio",
        KUEUE_TESTS,
    ),
    Mutant(
        "what a LocalQueue used never fades",
        f"{KUEUE}/workload_index.py",
        "return sum_amounts(multiply(consumed, 1 - rate), multiply(usage, rate))",
        "return sum_amounts(consumed, multiply(usage, rate))",
        KUEUE_TESTS,
    ),
    Mutant(
        "a reservation costs its LocalQueue no entry penalty",
        f"{KUEUE}/afs_charges.py",
        "if settings is None or not adds_penalty(state.config, rules.queue, request.workload):",
        "if True:",
        KUEUE_TESTS,
    ),
    Mutant(
        "the second pass never slows down",
        f"{KUEUE}/workloads.py",
        "return min(_MAX_SECOND_PASS_DELAY, SECOND << min(round - 1, 5))",
        "return SECOND",
        KUEUE_TESTS,
    ),
    Mutant(
        "a replaced node may be in any rack, whatever was required",
        f"{KUEUE}/topology/tas_assignment.py",
        "return _domain_above(domains, remaining[0], domains.levels.index(key))",
        "return ()",
        KUEUE_TESTS,
    ),
    Mutant(
        "a workload whose node has no replacement waits instead of being evicted",
        f"{KUEUE}/processing.py",
        "and gates.fail_fast and conditions.is_on_failed_node(workload):",
        "and False:",
        KUEUE_TESTS,
    ),
    Mutant(
        "an eviction loses the cause of a deactivation",
        f"{KUEUE}/apply_decisions.py",
        "decision.reason, decision.message, now, cause=decision.cause)",
        "decision.reason, decision.message, now)",
        ("tests/scheduling/kueue/test_apply_decisions.py",),
    ),
    Mutant(
        "the end of a backoff does not requeue the workload",
        f"{KUEUE}/conditions.py",
        "if waits is None or waits.status or waits.reason not in RETRIED_AFTER_BACKOFF:",
        "if True:",
        ("tests/scheduling/kueue/test_controller.py",),
    ),
    Mutant(
        "the reason of a pending workload ignores the resource groups of its queue",
        "gpuconsole/insight/pending/reasons.py",
        "return code_of(refused.message, groups)",
        "return code_of(refused.message)",
        ("tests/insight/test_queue_index.py",),
    ),
    Mutant(
        "places are looked for on counts of earlier searches",
        f"{KUEUE}/topology/tas_domain_counts.py",
        "self.found.clear()",
        "pass",
        KUEUE_TESTS,
    ),
    Mutant(
        "a slice that takes over needs quota for all its pods",
        f"{KUEUE}/flavor_assigner.py",
        "amount -= given.usage.get(resource, 0)",
        "amount -= 0",
        KUEUE_TESTS,
    ),
    Mutant(
        "all devices of a claim are charged as one",
        f"{KUEUE}/dra/claims.py",
        "counts.get(request.device_class, 0) + request.count)",
        "counts.get(request.device_class, 0) + 1)",
        KUEUE_TESTS,
    ),
    Mutant(
        "a transformation that replaces a resource counts it, too",
        f"{KUEUE}/config.py",
        "if rule is None or rule.strategy == RETAIN:",
        "if True:",
        KUEUE_TESTS,
    ),
    Mutant(
        "the back-off after pods were not ready in time does not grow",
        f"{KUEUE}/conditions.py",
        "backoff(base, maximum, workload.requeue.count + 1)",
        "backoff(base, maximum, 1)",
        KUEUE_TESTS,
    ),
    Mutant(
        "time that was run before an eviction is not part of the maximum execution time",
        f"{KUEUE}/workload_controller.py",
        "workload.max_execution_time - workload.past_execution - (now - admitted.since)",
        "workload.max_execution_time - (now - admitted.since)",
        KUEUE_TESTS,
    ),
    Mutant(
        "the Configuration's excluded resources are not read",
        f"{KUEUE}/configuration/loading.py",
        "exclude_resource_prefixes=resources.exclude_resource_prefixes,",
        "exclude_resource_prefixes=(),",
        KUEUE_TESTS,
    ),
    Mutant(
        "blockAdmission blocks nobody",
        f"{KUEUE}/processing.py",
        "if context.unready and not entry.second_pass_round:",
        "if False:",
        KUEUE_TESTS,
    ),
    Mutant(
        "a variant takes any flavor",
        f"{KUEUE}/flavor_assigner.py",
        "not concurrent_admission.allows_flavor(\n            self._request.workload, flavor\n        )",
        "False",
        KUEUE_TESTS,
    ),
    Mutant(
        "queues with an inactive admission check admit",
        f"{KUEUE}/cluster_queue_status.py",
        "inactive = [name for name, check in found.items() if not check.active]",
        "inactive: list[str] = []",
        KUEUE_TESTS,
    ),
    Mutant(
        "gang ignored: half a gang is placed",
        f"{KUBE}/placement_plans.py",
        "    if steps and len(steps) >= gang.needed:",
        "    if steps:",
        KUBE_TESTS,
    ),
    Mutant(
        "bin-packing spreads",
        f"{KUBE}/scores.py",
        '    "MostAllocated": most_allocated,\n    "LeastAllocated": least_allocated,',
        '    "MostAllocated": least_allocated,\n    "LeastAllocated": most_allocated,',
        KUBE_TESTS,
    ),
    Mutant(
        "FGD prefers the node that it fragments most",
        f"{KUBE}/packing/policies.py",
        "exp((after - before) / (measure.weight * MILLI))",
        "exp((before - after) / (measure.weight * MILLI))",
        PACKING_TESTS,
    ),
    Mutant(
        "FGD's measure leaves cpu out",
        f"{KUBE}/packing/policies.py",
        "return steps[1][bisect_right(steps[0], cpu)]",
        "return steps[1][-1]",
        PACKING_TESTS,
    ),
    Mutant(
        "FGD's typical pods are all pods",
        f"{KUBE}/packing/policies.py",
        "TYPICAL_PERCENT = 95",
        "TYPICAL_PERCENT = 100",
        PACKING_TESTS,
    ),
    Mutant(
        "dot-product is not halved",
        f"{KUBE}/packing/policies.py",
        "return int(MAX_SCORE * (1 - product / 2))",
        "return int(MAX_SCORE * (1 - product))",
        PACKING_TESTS,
    ),
    Mutant(
        "GPU clustering treats mixed nodes as pure ones",
        f"{KUBE}/packing/policies.py",
        "MAX_SCORE * (3 if len(capacity.kinds) == 1 else 2) // 4",
        "MAX_SCORE * 3 // 4",
        PACKING_TESTS,
    ),
    Mutant(
        "preemptionPolicy Never preempts",
        f"{KUBE}/placement_plans.py",
        "if pending_pod.preempts_never or not node_cache.policy.preempts:",
        "if not node_cache.policy.preempts:",
        KUBE_TESTS,
    ),
    Mutant(
        "no victim is taken back on a node",
        f"{KUBE}/preemption.py",
        "    if count_fitting(left, pod_class):\n        return True\n    _add_requests(left, assigned, 1)",
        "    _add_requests(left, assigned, 1)",
        KUBE_TESTS,
    ),
    Mutant(
        "taints of nodes ignored",
        f"{KUBE}/filters.py",
        'if taint.effect in ("NoSchedule", "NoExecute") and not is_tolerated(taint, pod_class.tolerations):',
        "if False:",
        KUBE_TESTS,
    ),
    Mutant(
        "checkpoints ignored: an eviction loses everything",
        f"{CONTROLLERS}/work.py",
        "return ran - ran % work_task.checkpoint if work_task.checkpoint else 0",
        "return 0",
        SIM_TESTS,
    ),
    Mutant(
        "lost work is not counted",
        f"{CONTROLLERS}/work.py",
        "return _loss_of_group(world, group, ran - safe)",
        "return NO_LOSS",
        SIM_TESTS,
    ),
    Mutant(
        "the quota of a Job is used until its terminating pods have ended",
        "gpuconsole/model/jobs/workloads.py",
        '    "Job": QuotaRelease.WITHOUT_ACTIVE_PODS,\n',
        '    "Job": QuotaRelease.PODS_STOPPED,\n',
        QUOTA_RELEASE_TESTS,
    ),
    Mutant(
        "the quota of a pod group is free while its pods terminate",
        f"{CONTROLLERS}/eviction.py",
        "    if any(not pod.done for pod in counted):\n",
        "    if False:\n",
        QUOTA_RELEASE_TESTS,
    ),
    Mutant(
        "the quota of an MPIJob is used until its terminating workers have ended",
        f"{CONTROLLERS}/eviction.py",
        "        counted = [pod for pod in counted if pod.pod_set == LAUNCHER]\n",
        "        pass\n",
        QUOTA_RELEASE_TESTS,
    ),
    Mutant(
        "the AppWrapper controller notices at once that the pods have ended",
        f"{CONTROLLERS}/eviction.py",
        "interval * interval if interval else stopped",
        "interval * interval if False else stopped",
        QUOTA_RELEASE_TESTS,
    ),
    Mutant(
        "a Job that is admitted again waits for its old pods",
        f"{CONTROLLERS}/eviction.py",
        "    if group is not None and starts_before_old_pods_end(world, workload):\n",
        "    if False:\n",
        QUOTA_RELEASE_TESTS,
    ),
    Mutant(
        "a Job that replaces only failed pods starts beside its old pods",
        f"{CONTROLLERS}/eviction.py",
        "replaces_failed_only=failed_only)",
        "replaces_failed_only=False)",
        QUOTA_RELEASE_TESTS,
    ),
    Mutant(
        "a Job that started again loses a pod when an old pod of it has ended",
        "gpuconsole/sim/world.py",
        "    return not (pod.deleted and pod.created < group.created)\n",
        "    return True\n",
        QUOTA_RELEASE_TESTS,
    ),
    Mutant(
        "pods of a snapshot that were told to terminate later terminate now",
        f"{CONTROLLERS}/pods.py",
        "deleted=world.now + after,",
        "deleted=world.now,",
        QUOTA_RELEASE_TESTS,
    ),
    Mutant(
        "pods of a live cluster keep the index that nobody gave them",
        "gpuconsole/sim/adoption.py",
        "        if (pod.pod_set, pod.index) != (pod_set, index):\n",
        "        if False:\n",
        SIM_TESTS,
    ),
    Mutant(
        "a pod's checkpoints ignored where pods work each for itself",
        f"{CONTROLLERS}/work.py",
        "        safe = _checkpointed(work_task, ran, notice)\n",
        "        safe = 0\n",
        SIM_TESTS,
    ),
    Mutant(
        "budgets ignored: kube-scheduler evicts pods that a PodDisruptionBudget keeps",
        f"{KUBE}/preemption.py",
        "if left[index] < 0:",
        "if False:",
        KUBE_TESTS,
    ),
    Mutant(
        "failures without end: backoffLimit ignored",
        f"{CONTROLLERS}/work.py",
        "    if job.failures > job.backoff_limit:",
        "    if False:",
        SIM_TESTS,
    ),
    Mutant(
        "Volcano: gangs are ready with a task less",
        f"{VOLCANO}/plugins/gang_and_priority.py",
        "    return job.is_ready() and job.role_minimums.are_ready() and job.check_sub_job_ready()",
        "    return job.ready_task_num + 1 >= job.min_available",
        VOLCANO_TESTS,
    ),
    Mutant(
        "Volcano: gangs lose tasks that they need",
        f"{VOLCANO}/plugins/gang_and_priority.py",
        "        if ready > job.min_available:",
        "        if ready > 0:",
        VOLCANO_TESTS,
    ),
    Mutant(
        "Volcano: binpack prefers empty nodes",
        f"{VOLCANO}/plugins/nodeorder.py",
        "                used = wanted + node.used.get(name)",
        "                used = capacity - node.used.get(name)",
        VOLCANO_TESTS,
    ),
    Mutant(
        "Volcano: proportion gives every queue the same",
        f"{VOLCANO}/api/queue.py",
        "attr.weight / weights",
        "1 / weights",
        VOLCANO_TESTS,
    ),
    Mutant(
        "KAI: stale gangs go at once",
        f"{KAI}/actions/actions.py",
        "    if grace < 0 or session.now - job.stale_since < grace:",
        "    if False:",
        KAI_TESTS,
    ),
    Mutant(
        "topology spread: one domain may hold one pod more",
        f"{KUBE}/plugins/pod_topology_spread.py",
        "- state.minimum > state.constraint.max_skew:",
        "- state.minimum > state.constraint.max_skew + 1:",
        KUBE_TESTS,
    ),
    Mutant(
        "a ResourceQuota lets every pod be created",
        f"{CONTROLLERS}/admission_plugins.py",
        "if refusal is not None:",
        "if False:",
        ("tests/sim/test_resource_quotas.py",),
    ),
    Mutant(
        "what is used of a ResourceQuota does not fall when a pod has ended",
        "gpuconsole/sim/world.py",
        "return old.template is new.template and old.done == new.done",
        "return old.template is new.template",
        ("tests/sim/test_resource_quotas.py",),
    ),
    Mutant(
        "later pods of a group leave the domain of the others",
        f"{KUBE}/pod_groups.py",
        "if not taken or taken == {value}",
        "if True",
        ("tests/sim/test_group_topologies.py",),
    ),
    Mutant(
        "who was refused by a ResourceQuota never tries again",
        f"{CONTROLLERS}/admission_plugins.py",
        "_schedule_retries(world, namespace)",
        "pass",
        ("tests/sim/test_resource_quotas.py",),
    ),
    Mutant(
        "a ResourceQuota counts pods outside its scopes",
        "gpuconsole/model/resource_quota.py",
        "_in_scope(scope, template, priority_class) for scope in quota.scopes",
        "True for scope in quota.scopes",
        ("tests/sim/test_resource_quotas.py",),
    ),
    Mutant(
        "all replicas of a Workload's pod group are one gang",
        "gpuconsole/model/documents/pods_and_selectors.py",
        '(workload, group, replica))), f"',
        '(workload, group))), f"',
        ("tests/sim/test_scheduling_groups.py",),
    ),
    Mutant(
        "pods of a group of scheduling.k8s.io start one by one",
        f"{KUBE}/pod_groups.py",
        "name = name or pod.template.scheduling_group",
        "name = name or ''",
        ("tests/sim/test_scheduling_groups.py",),
    ),
    Mutant(
        "a pod changes, and the time before is booked at its new share",
        f"{COST}/allocation.py",
        "            self._book(name, node, self._time)\n\n    def _touch_pods",
        "            pass\n\n    def _touch_pods",
        COST_TESTS,
    ),
    Mutant(
        "what a preemption lost is moved to lost twice",
        f"{COST}/allocation.py",
        "event.lost_gpu_seconds > 0 and event.what is not HistoryEventKind.PREEMPTED",
        "event.lost_gpu_seconds > 0",
        COST_TESTS,
    ),
    Mutant(
        "stale telemetry counts for ever",
        f"{COST}/allocation.py",
        "booked.measured_until = stale",
        "pass",
        COST_TESTS,
    ),
    Mutant(
        "work that an eviction did not lose can be lost by the next one",
        f"{COST}/allocation.py",
        "account.runs.clear()",
        "pass",
        COST_TESTS,
    ),
    Mutant(
        "cents are cut off instead of apportioned",
        f"{COST}/report.py",
        "for place in by_remainder[: max(0, missing)]:",
        "for place in by_remainder[:0]:",
        ("tests/insight/test_cost_summary.py",),
    ),
    Mutant(
        "cost: rows of the same owner and hour are not added in FOCUS",
        f"{COST}/focus.py",
        "getattr(one, name) + getattr(other, name) for name in COST_AMOUNTS",
        "getattr(other, name) for name in COST_AMOUNTS",
        ("tests/insight/test_focus.py",),
    ),
    Mutant(
        "cost: the list cost of FOCUS is what spot costs",
        f"{COST}/focus.py",
        "row.cost_usd + row.saved_usd",
        "row.cost_usd",
        ("tests/insight/test_focus.py",),
    ),
    Mutant(
        "export: an existing file is taken for a new one",
        "gpuconsole/ui/screens/global_actions.py",
        "if not os.path.lexists(file):",
        "if file is not None:",
        ("tests/ui/test_export.py",),
    ),
    Mutant(
        "export: hidden columns are exported",
        "gpuconsole/ui/screens/global_actions.py",
        "partial(table_of_rows, grid.visible_columns, grid.rows)",
        "partial(table_of_rows, grid.columns, grid.rows)",
        ("tests/ui/test_export.py",),
    ),
    Mutant(
        "tables: the number that sorts a cell is its value",
        "gpuconsole/insight/tables.py",
        "isinstance(cell, Valued) and column.unit else",
        "isinstance(cell, Valued) else",
        ("tests/insight/test_tables.py",),
    ),
    Mutant(
        "tables: a name in a CSV file is a formula of the spreadsheet",
        "gpuconsole/insight/tables.py",
        'return f"\'{text}" if text.lstrip().startswith(_FORMULA) else text',
        "return text",
        ("tests/insight/test_tables.py",),
    ),
    Mutant(
        "cost: the billing period of December ends in the same year",
        f"{COST}/focus.py",
        "first.year + first.month // 12",
        "first.year",
        ("tests/insight/test_focus.py",),
    ),
    Mutant(
        "cost: December ends in the same year",
        f"{COST}/report.py",
        "begin.year + begin.month // 12",
        "begin.year",
        ("tests/insight/test_cost_summary.py",),
    ),
    Mutant(
        "cost: the last month is this month",
        f"{COST}/report.py",
        "month_window(month_of(month[0] - 1))",
        "month_window(month_of(month[0]))",
        ("tests/insight/test_cost_summary.py",),
    ),
    Mutant(
        "cost: the forecast of a budget takes a week for observed",
        f"{COST}/report.py",
        "observed = max(now - first, 1)",
        "observed = RATE_OVER",
        ("tests/insight/test_cost_summary.py",),
    ),
    Mutant(
        "cost: a budget counts what the month before cost",
        f"{COST}/report.py",
        "if hour >= begin:",
        "if hour >= recent:",
        ("tests/insight/test_cost_summary.py",),
    ),
    Mutant(
        "cost: a budget alerts only when it is exceeded",
        f"{COST}/report.py",
        "self.is_exceeded or self.forecast_usd > self.budget.usd_per_month",
        "self.is_exceeded",
        ("tests/insight/test_cost_summary.py",),
    ),
    Mutant(
        "cost: lenders are attributed more than is borrowed of them",
        f"{COST}/report.py",
        "usd * loan.gpus / over[loan.borrower][pair]",
        "usd",
        ("tests/insight/test_cost_loans.py",),
    ),
    Mutant(
        "cost: a budget that is exceeded has exit status 0",
        "gpuconsole/cli/cost.py",
        "return 1 if any(one.alert for one in statuses) else 0",
        "return 0",
        ("tests/cli/test_cost.py",),
    ),
    Mutant(
        "cost: a report begins before the recording does",
        "gpuconsole/cli/cost.py",
        "begin, end = max(begin, first), min(end, last)",
        "end = min(end, last)",
        ("tests/cli/test_cost.py",),
    ),
    Mutant(
        "cost: nobody learns that a month was recorded in part",
        "gpuconsole/cli/cost.py",
        "if month is None or window[0] == month_window(month)[0]:",
        "if True:",
        ("tests/cli/test_cost.py",),
    ),
    Mutant(
        "pods that hold more than their node cost more than it",
        f"{COST}/rates.py",
        "return [part / total for part in parts], 0.0",
        "return parts, 0.0",
        COST_TESTS,
    ),
    Mutant(
        "panels: a large panel keeps its neighbours",
        "gpuconsole/ui/widgets/panels.py",
        "alone = not before or panel.id in large or before[-1].id in large or before[-1].group != panel.group",
        "alone = not before or before[-1].group != panel.group",
        ("tests/ui/test_panels.py",),
    ),
    Mutant(
        "panels: those are left out that free no lines",
        "gpuconsole/ui/widgets/panels.py",
        "key=lambda panel: (panel.rank > 0 and frees(panel), panel.rank)",
        "key=lambda panel: panel.rank",
        ("tests/ui/test_panels.py",),
    ),
    Mutant(
        "charts: an eviction ends no allocation",
        "gpuconsole/insight/history_charts.py",
        "    HistoryEventKind.EVICTED,\n    HistoryEventKind.FINISHED,",
        "    HistoryEventKind.FINISHED,",
        ("tests/insight/test_history_charts.py",),
    ),
    Mutant(
        "charts: who waited exactly so long is not among those who waited at most so long",
        "gpuconsole/insight/history_charts.py",
        "bisect_right(self.waits, wait)",
        "sum(one < wait for one in self.waits)",
        ("tests/insight/test_history_charts.py",),
    ),
    Mutant(
        "timeline: a phase begins again with each step in it",
        "gpuconsole/insight/timeline.py",
        "        if following is current:\n            continue\n",
        "",
        ("tests/insight/test_life_phases.py",),
    ),
)


def run_tests(folder: Path, tests: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
    # The copy has no `../shared` beside it: the project's own tests have to notice.
    environment = {k: v for k, v in os.environ.items() if k != "GPUCONSOLE_CONFORMANCE"}
    environment |= {"PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=600)


def try_mutant(mutant: Mutant) -> str | None:
    """Apply one mutant to a fresh copy; return what is wrong, or None if a test turned red."""
    with tempfile.TemporaryDirectory(prefix="mutant-") as name:
        folder = Path(name) / "project"
        folder.mkdir()
        for part in COPIED:
            source = ROOT / part
            if source.is_dir():
                shutil.copytree(source, folder / part, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(source, folder / part)
        path = folder / mutant.file
        text = path.read_text()
        if text.count(mutant.old) != 1:
            return f"its line occurs {text.count(mutant.old)} times in {mutant.file}"
        path.write_text(text.replace(mutant.old, mutant.new))
        result = run_tests(folder, mutant.tests)
        # 1 = a test failed; anything else is a broken run, which proves nothing.
        if result.returncode == 1:
            return None
        tail = "\n".join((result.stdout + result.stderr).splitlines()[-15:])
        return "no test noticed" if result.returncode == 0 else f"pytest ended with {result.returncode}:\n{tail}"


def main() -> int:
    wanted = sys.argv[1:]
    mutants = [m for m in MUTANTS if not wanted or any(word in m.name for word in wanted)]
    healthy = run_tests(ROOT, tuple(sorted({test for m in mutants for test in m.tests})))
    if healthy.returncode:
        print(healthy.stdout[-3000:])
        print("the tests are red before any mutant is applied")
        return 1
    red = 0
    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        for mutant, problem in zip(mutants, pool.map(try_mutant, mutants), strict=True):
            red += problem is None
            print(
                f"{'red     ' if problem is None else 'SURVIVED'}  {mutant.name}" + (f": {problem}" if problem else ""),
                flush=True,
            )
    print(f"{red}/{len(mutants)}")
    return 0 if red == len(mutants) and mutants else 1


if __name__ == "__main__":
    sys.exit(main())
