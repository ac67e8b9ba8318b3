"""Flavor assignment: chooses a flavor for each resource of a workload (Kueue 0.19 pkg/scheduler/flavorassigner).

Resources of one resource group get one flavor together; the flavors are tried in the queue's order, from where the last
attempt stopped. A flavor fits, fits after preemption, or does not fit; `FlavorAssignmentMode` ranks the outcomes. Pods
can use a flavor if they tolerate its taints and their node selector and affinity match its labels (`flavor_mismatch`;
Kueue: checkFlavorForPodSets).
"""

from collections.abc import Callable, Mapping, Sequence

from gpuconsole.model.pod_template import PodSet, PodTemplate
from gpuconsole.model.queues import PreemptionPolicy, ResourceFlavor
from gpuconsole.model.resources import add
from gpuconsole.scheduling.kueue import concurrent_admission, messages
from gpuconsole.scheduling.kueue.assignment import (
    BEST_MODE,
    WORST_MODE,
    Assignment,
    FlavorAssignment,
    FlavorAssignmentMode,
    FlavorResult,
    FlavorSearch,
    ModeAndHeight,
    PodSetResult,
    ResumePosition,
    is_preferred,
    stops_search,
)
from gpuconsole.scheduling.kueue.cluster_queue_status import ClusterQueueConfig, CompiledResourceGroup
from gpuconsole.scheduling.kueue.context import Context
from gpuconsole.scheduling.kueue.messages import GranularReason, most_severe
from gpuconsole.scheduling.kueue.pod_resources import WorkloadRequest, in_kueue_order
from gpuconsole.scheduling.kueue.preemption import preemption_possibility
from gpuconsole.scheduling.kueue.slices import ReplacedPodSet
from gpuconsole.scheduling.kueue.topology import demand
from gpuconsole.scheduling.kueue.topology.tas_assignment import place_pods


def flavor_mismatch(template: PodTemplate, flavor: ResourceFlavor) -> str:
    """Return why pods of this template cannot use the flavor; empty if they can."""
    for taint in flavor.node_taints:
        if taint.keeps_pods_away and not any(
            toleration.tolerates(taint) for toleration in (*template.tolerations, *flavor.tolerations)
        ):
            return messages.untolerated_taint_reason(taint, flavor.name)
    if flavor.node_labels and not matches_labels(template, flavor.node_labels):
        return f"flavor {flavor.name} doesn't match node affinity"
    return ""


def matches_labels(template: PodTemplate, labels: Mapping[str, str]) -> bool:
    """True if the node selector and the required affinity match, looking only at keys that the labels have.

    The terms of an affinity are alternatives: one without any of these keys always matches.
    """
    if any(key in labels and labels[key] != value for key, value in template.node_selector.items()):
        return False
    if template.affinity is None:
        return True
    terms = [[e for e in term.expressions if e.key in labels] for term in template.affinity]
    if not all(terms):
        return True
    return not terms or any(all(expression.matches(labels) for expression in term) for term in terms)


NominatedFlavors = Mapping[str, Mapping[str, str]]
"""Pod set → resource → flavor."""
PreemptionOracle = Callable[[Context, ClusterQueueConfig, WorkloadRequest, int, int], ModeAndHeight]
"""Returns whether preemption could free an amount of a column, and the queue's borrowing level after it."""
_Found = tuple[dict[str, FlavorAssignment], list[str]]


class _FlavorRejections:
    """Reasons against flavors, collected during one search. Mutates."""

    __slots__ = ("cause", "reasons")

    def __init__(self) -> None:
        self.reasons: list[str] = []
        self.cause = GranularReason.NONE
        """Most severe granular reason against the flavor that is being tried."""

    def add(self, reason: str, cause: GranularReason) -> None:
        self.reasons.append(reason)
        self.cause = most_severe((self.cause, cause))


class FlavorAssigner:
    """Assigns flavors to one workload; leaves the usage as it is."""

    def __init__(
        self,
        context: Context,
        rules: ClusterQueueConfig,
        request: WorkloadRequest,
        resume: ResumePosition | None = None,
        nominated: NominatedFlavors | None = None,
        oracle: PreemptionOracle = preemption_possibility,
        replaced: Sequence[ReplacedPodSet] = (),
    ) -> None:
        self._context = context
        self._rules = rules
        self._request = request
        self._resume = resume
        self._nominated = nominated
        """Flavors to which a repeated assignment within the cycle is restricted; None = all."""
        self._oracle = oracle
        self._replaced = replaced
        """Admitted pod sets of the slice that it replaces: only what exceeds them needs quota, in the same flavors."""

    def assign(self, counts: Sequence[int] | None = None) -> Assignment:
        """Find flavors and topology assignments for the workload, or for smaller `counts` of its pods."""
        assignment = Assignment(self._replaced)
        results = self._assign_all(counts)
        for indices in self._pod_set_groups():
            members = [results[index] for index in indices]
            searches: list[FlavorSearch] = []
            choices, reasons = self._assign_group(indices, members, assignment.usage, searches)
            failed = False
            for result in members:
                result.reasons = reasons[:]
                result.searches = searches
                result.choices = {name: choices[name] for name in result.requests if name in choices}
                if not result.requests and result.pod_set.topology is not None and result.pod_set.topology.group:
                    result.choices = self._topology_choices(choices)
                assignment.append(result)
                failed = failed or bool(result.requests and not result.choices)
            if failed:
                return assignment
        place_pods(self._context, self._rules, self._request, assignment)
        return assignment

    def _assign_all(self, counts: Sequence[int] | None) -> list[PodSetResult]:
        """Return the pod sets to assign; in a second pass they have their flavors already."""
        results = []
        for index, request in enumerate(self._request.pod_sets):
            count = request.count if counts is None or not request.count else counts[index]
            requests = request.requests_for(count)
            if self._rules.covers_pods:
                requests = in_kueue_order({**requests, "pods": count})
            results.append(PodSetResult(request.pod_set, count, requests))
        for result, given in zip(results, self._request.admitted_assignments, strict=False):
            result.keep_admitted_flavors(given, self._context.setup.tree.numbers)
        return results

    def _pod_set_groups(self) -> list[list[int]]:
        """Return the indices of pod sets that get their flavors together, in order of their first."""
        groups: dict[str | int, list[int]] = {}
        for index, request in enumerate(self._request.pod_sets):
            topology = request.pod_set.topology
            groups.setdefault(topology.group if topology is not None and topology.group else index, []).append(index)
        return list(groups.values())

    def _topology_choices(self, choices: Mapping[str, FlavorAssignment]) -> dict[str, FlavorAssignment]:
        """Return the flavors with a topology, for a pod set of a topology group without requests."""
        flavors = self._context.setup.flavors
        return {name: choice for name, choice in choices.items() if flavors[choice.flavor].topology}

    def _assign_group(
        self, indices: list[int], members: list[PodSetResult], assumed: Mapping[int, int], searches: list[FlavorSearch]
    ) -> _Found:
        requests = members[0].requests if len(members) == 1 else in_kueue_order(add(*(m.requests for m in members)))
        choices = {name: choice for member in members for name, choice in member.choices.items()}
        reasons: list[str] = []
        for resource, amount in requests.items():
            group = self._rules.group_of.get(resource)
            if resource in choices or (group is None and (not amount or self._context.config.ignore_undeclared)):
                continue
            if group is None:
                return {}, [messages.unavailable_reason(resource)]
            noted: list[FlavorResult] = []
            found, why = self._search_flavors(group, indices, requests, resource, assumed, noted)
            searches.append(FlavorSearch(resource, group.flavors, tuple(noted)))
            if not found:
                return {}, why
            choices.update(found)
            reasons.extend(why)
        return choices, reasons

    def _search_flavors(
        self,
        group: CompiledResourceGroup,
        indices: list[int],
        requests: Mapping[str, int],
        resource: str,
        assumed: Mapping[int, int],
        noted: list[FlavorResult],
    ) -> _Found:
        """Try the group's flavors in order; returns the choice per resource and the reasons against better ones."""
        fungibility = self._rules.queue.fungibility
        fungible = self._context.gates.flavor_fungibility
        wanted = [(name, amount) for name, amount in requests.items() if name in group.resources]
        best: dict[str, FlavorAssignment] = {}
        best_outcome = WORST_MODE
        rejections = _FlavorRejections()
        tried = -1
        for index in range(self._start_index(indices[0], resource), len(group.flavors)):
            tried, flavor = index, group.flavors[index]
            skipped = self._is_skipped(flavor, indices, resource)
            if skipped:
                rejections.reasons.append(skipped)
                continue
            why = self._exclusion_reason(flavor, indices, group)
            if why:
                rejections.reasons.append(why)
                noted.append(
                    FlavorResult(flavor, FlavorAssignmentMode.NO_FIT, 0, (why,), GranularReason.NO_MATCHING_FLAVOR)
                )
                continue
            before, rejections.cause = len(rejections.reasons), GranularReason.NONE
            choices, outcome, height = self._try_flavor(group, index, indices, wanted, assumed, rejections)
            noted.append(FlavorResult(flavor, outcome[0], height, tuple(rejections.reasons[before:]), rejections.cause))
            if fungible and stops_search(outcome, fungibility):
                best, best_outcome = choices, outcome
                break
            if is_preferred(outcome, best_outcome, fungibility) if fungible else outcome[0] > best_outcome[0]:
                best, best_outcome = choices, outcome
            if not fungible and best_outcome[0] == FlavorAssignmentMode.FIT:
                break
        if fungible:
            for choice in best.values():
                choice.tried = tried if tried < len(group.flavors) - 1 else -1
        return best, ([] if best_outcome[0] == FlavorAssignmentMode.FIT else rejections.reasons)

    def _start_index(self, index: int, resource: str) -> int:
        if self._resume is None or index >= len(self._resume) or not self._context.gates.flavor_fungibility:
            return 0
        return self._resume[index].get(resource, -1) + 1

    def _is_skipped(self, flavor: str, indices: list[int], resource: str) -> str:
        """Return why the flavor is skipped without a check; empty if it is not."""
        if self._nominated is not None:
            names = [self._request.pod_sets[index].pod_set.name for index in indices]
            if all(self._nominated.get(name, {}).get(resource) != flavor for name in names):
                return messages.not_nominated_reason(flavor, resource)
        if self._context.gates.concurrent_admission and not concurrent_admission.allows_flavor(
            self._request.workload, flavor
        ):
            return messages.other_variant_flavor_reason(flavor)
        return ""

    def _exclusion_reason(self, flavor: str, indices: list[int], group: CompiledResourceGroup) -> str:
        """Return why the flavor can never suit these pod sets; empty if it can."""
        known = self._context.setup.flavors.get(flavor)
        if known is None:
            return f"flavor {flavor} not found"
        pod_sets = (self._request.pod_sets[index].pod_set for index in indices)
        return next((why for pod_set in pod_sets if (why := self._mismatch_reason(pod_set, known, group))), "")

    def _mismatch_reason(self, pod_set: PodSet, flavor: ResourceFlavor, group: CompiledResourceGroup) -> str:
        if self._context.gates.topology:
            why = demand.topology_mismatch(pod_set, flavor, group, self._rules, self._context.setup.topologies)
            if why:
                return why
        return flavor_mismatch(pod_set.template, flavor)

    def _try_flavor(
        self,
        group: CompiledResourceGroup,
        index: int,
        indices: Sequence[int],
        wanted: Sequence[tuple[str, int]],
        assumed: Mapping[int, int],
        rejections: _FlavorRejections,
    ) -> tuple[dict[str, FlavorAssignment], ModeAndHeight, int]:
        """Return choices, outcome and highest borrowing level of one flavor.

        The outcome is the worst over its resources; all are evaluated, even after one that does not fit.
        """
        outcome, highest = BEST_MODE, 0
        choices: dict[str, FlavorAssignment] = {}
        for name, amount in wanted:
            column = group.columns[index][name]
            if self._replaced:
                amount, same = self._with_requests(indices, group.flavors[index], name, amount, rejections)
                outcome = outcome if same else WORST_MODE
            mode, height = self._rate_column(column, assumed.get(column, 0), amount, rejections)
            highest = max(highest, height)
            if is_preferred(outcome, (mode, height), self._rules.queue.fungibility):
                outcome = (mode, height)
            if outcome[0] != FlavorAssignmentMode.NO_FIT:
                public = FlavorAssignmentMode.FIT if mode == FlavorAssignmentMode.FIT else FlavorAssignmentMode.PREEMPT
                choices[name] = FlavorAssignment(group.flavors[index], column, public, height)
        return choices, outcome, highest

    def _with_requests(
        self, indices: Sequence[int], flavor: str, resource: str, amount: int, rejections: _FlavorRejections
    ) -> tuple[int, bool]:
        """Return the amount needed beyond the old slice; False if that has another flavor."""
        for given in (self._replaced[index] for index in indices if index < len(self._replaced)):
            original = given.flavors.get(resource, "")
            if original != flavor:
                rejections.add(messages.other_flavor_reason(flavor, original), GranularReason.NO_MATCHING_FLAVOR)
                return amount, False
            amount -= given.usage.get(resource, 0)
        return amount, True

    def _rate_column(self, column: int, assumed: int, amount: int, rejections: _FlavorRejections) -> ModeAndHeight:
        """Compare one amount with the quota (fitsResourceQuota); adds a reason to `rejections` unless it fits."""
        node, usage = self._rules.node, self._context.snapshot.usage
        tree = usage.tree
        at = node * tree.width + column
        total = assumed + amount
        flavor, resource = tree.columns[column]
        if total > tree.potential[at]:
            reason = messages.exceeds_capacity_reason(resource, flavor, assumed, amount, tree.potential[at])
            rejections.add(reason, GranularReason.EXCEEDS_MAX_QUOTA)
            return FlavorAssignmentMode.NO_FIT, 0
        height, may_reclaim = usage.borrowing_height(node, column, total)
        available = max(0, usage.available(node, column))
        if total <= available:
            return FlavorAssignmentMode.FIT, height
        reason = messages.insufficient_quota_reason(resource, flavor, total - available)
        if tree.nominal[at] >= total or may_reclaim or self._may_preempt_while_borrowing():
            rejections.reasons.append(reason)
            return self._oracle(self._context, self._rules, self._request, column, total)
        rejections.add(reason, GranularReason.WAITING_FOR_QUOTA)
        return FlavorAssignmentMode.NO_FIT, height

    def _may_preempt_while_borrowing(self) -> bool:
        preemption = self._rules.queue.preemption
        return preemption.borrow_within_cohort.policy != PreemptionPolicy.NEVER or (
            self._context.config.fair_sharing and preemption.reclaim_within_cohort != PreemptionPolicy.NEVER
        )
