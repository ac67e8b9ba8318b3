"""Concurrent admission: the variants of a workload, one for each flavor, are tried at once (gate ConcurrentAdmission).

The parent Workload represents the job and is never queued; each of its variants requests quota in one flavor of the
ClusterQueue. The first admitted variant passes its admission to the parent; the queue's policy decides which other
variants stay active. Their preemption gates open one after the other, at least `VARIANT_WAIT` apart, so that the
variants do not all preempt at once. The variants of a parent are siblings; a flavor is the more favorable the earlier
it stands in the ClusterQueue's only resource group.

Kueue 0.19 pkg/controller/concurrentadmission, pkg/workload/concurrentadmission and scheduler.findAdmittedSibling.
"""

from collections.abc import Callable, Iterable, Mapping
from hashlib import sha1
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from gpuconsole.model.clock import MINUTE, Span, Time
from gpuconsole.model.events import KueueEvent
from gpuconsole.model.queues import ClusterQueue, ConcurrentAdmission, MigrationMode
from gpuconsole.model.text import MAX_NAME
from gpuconsole.model.workloads import Condition, PreemptionGate, Workload
from gpuconsole.scheduling.kueue import conditions
from gpuconsole.scheduling.kueue.admissibility import ADMISSION_GATED_BY, WAITING_FOR_REPLACEMENT
from gpuconsole.scheduling.kueue.pod_resources import ALLOWED_FLAVORS, Holding

PARENT = "kueue.x-k8s.io/concurrent-admission-parent"
"""Label of a Workload that has variants."""
GATE = "kueue.x-k8s.io/concurrent-admission"
"""The preemption gate that every variant has."""


def is_parent(workload: Workload) -> bool:
    """True if the workload has variants."""
    return workload.labels.get(PARENT) == "true"


def same_flavors(old: ClusterQueue, new: ClusterQueue) -> bool:
    """True if both versions of a ClusterQueue have the same flavors in the same order: variants need no change."""
    before, after = ([[f.name for f in group.flavors] for group in queue.resource_groups] for queue in (old, new))
    return before == after


def parents_of(queue: str, local_queues: Iterable[tuple[str, str]], workloads: Iterable[Workload]) -> list[str]:
    """Return the keys of the parent workloads in a ClusterQueue, found by its LocalQueues."""
    keys = {key for key, leads_to in local_queues if leads_to == queue}
    return [workload.key for workload in workloads if is_parent(workload) and workload.local_queue in keys]


def variant_of(parent: Workload, flavor: str) -> Workload:
    """Return a new variant: the parent's spec, restricted to one flavor, with the gate closed. It has no uid yet."""
    gates = parent.preemption_gates
    if all(gate.name != GATE for gate in gates):
        gates = (*gates, PreemptionGate(name=GATE))
    return Workload(
        namespace=parent.namespace,
        name=_variant_name(parent, flavor),
        labels={name: value for name, value in parent.labels.items() if name != PARENT},
        annotations={**parent.annotations, ALLOWED_FLAVORS: flavor},
        owner=f"Workload/{parent.key}",
        job_uid=parent.job_uid,
        queue=parent.queue,
        priority=parent.priority,
        priority_class=parent.priority_class,
        priority_kind=parent.priority_kind,
        active=parent.active,
        pod_sets=parent.pod_sets,
        max_execution_time=parent.max_execution_time,
        preemption_gates=tuple(replace(gate, open=False, since=None) for gate in gates),
    )


def _variant_name(parent: Workload, flavor: str) -> str:
    """Return `NAME-variant-FLAVOR-HASH`; the hash replaces that of the parent's name (GetWorkloadNameForVariant)."""
    base = parent.name.rpartition("-")[0] or parent.name
    digest = sha1(f"\n\n{parent.name}\n{parent.uid}\n{flavor}".encode(), usedforsecurity=False).hexdigest()[:5]
    return f"{f'{base}-variant-{flavor}'[: MAX_NAME - 1 - len(digest)]}-{digest}"


def allowed_flavors(workload: Workload) -> tuple[str, ...]:
    """Return the flavors that the annotation ALLOWED_FLAVORS lists; empty without the annotation."""
    listed = workload.annotations.get(ALLOWED_FLAVORS, "").split(",")
    return tuple(flavor.strip() for flavor in listed if flavor.strip())


def allows_flavor(workload: Workload, flavor: str) -> bool:
    """True if the workload may use the flavor: it has no annotation ALLOWED_FLAVORS, or the annotation lists it."""
    return ALLOWED_FLAVORS not in workload.annotations or flavor in allowed_flavors(workload)


def flavor_of(variant: Workload) -> str:
    """Return the flavor of a variant; empty for other workloads."""
    return next(iter(allowed_flavors(variant)), "")


def flavor_ranks(queue: ClusterQueue) -> Mapping[str, int]:
    """Flavor → its position in the queue's order of preference, 0 the most preferred."""
    groups = queue.resource_groups[:1]
    return {flavor.name: place for group in groups for place, flavor in enumerate(group.flavors)}


class Siblings(NamedTuple):
    """Admitted siblings of a variant: one on a more favorable flavor and one on a less favorable one, if any."""

    more_favorable: Holding | None = None
    less_favorable: Holding | None = None


NO_SIBLINGS = Siblings()


def admitted_siblings(variant: Workload, queue: ClusterQueue, held: Iterable[Holding]) -> Siblings:
    """Return the first admitted sibling on a more favorable flavor, and the first on a less favorable one."""
    ranks = flavor_ranks(queue)
    own = ranks.get(flavor_of(variant))
    if own is None:
        return NO_SIBLINGS
    ranked = [(rank, holding) for holding in held if (rank := _rank(variant, holding.workload, ranks)) is not None]
    better = next((holding for rank, holding in ranked if rank < own), None)
    return Siblings(better, next((holding for rank, holding in ranked if rank > own), None))


def _rank(variant: Workload, other: Workload, ranks: Mapping[str, int]) -> int | None:
    """Return the rank of an admitted sibling's flavor; None for any other workload."""
    if other.parent != variant.parent or other.key == variant.key or not other.admitted:
        return None
    return ranks.get(flavor_of(other))


def may_migrate(variant: Workload, queue: ClusterQueue) -> bool:
    """True if the policy lets this variant replace an admitted sibling."""
    policy = queue.concurrent_admission
    if policy is None or not policy.last_acceptable_flavor:
        return True
    ranks = flavor_ranks(queue)
    return ranks.get(flavor_of(variant), len(ranks)) <= ranks.get(policy.last_acceptable_flavor, -1)


VARIANT_WAIT = 5 * MINUTE
"""Time between the openings of two variants' preemption gates."""


class VariantsReconcileResult(Struct, frozen=True, kw_only=True):
    """The result of one reconciliation of a parent and its variants."""

    changed: tuple[Workload, ...] = ()
    """The changed workloads: the parent first, then the variants in order of preference."""
    created: tuple[Workload, ...] = ()
    """New variants; they have no uid yet."""
    deleted: tuple[str, ...] = ()
    """Keys of variants whose flavors the queue does not have any more."""
    events: tuple[KueueEvent, ...] = ()
    reconcile_after: Span | None = None
    """Time until the next reconciliation; None = only after a change."""


def reconcile_variants(
    parent: Workload, variants: Iterable[Workload], queue: ClusterQueue, now: Time, *, granular: bool = False
) -> VariantsReconcileResult:
    """Reconcile a parent with its variants; `granular` is the gate UnadmittedWorkloadsObservability."""
    family = _VariantReconciler(parent, variants, queue, now, granular)
    family.create_missing()
    family.delete_stale()
    if family.propagate_eviction():
        return family.result()
    family.deactivate_variants()
    family.activate_variants()
    family.propagate_admission()
    return family.result(family.open_gate())


class _VariantReconciler:
    """A parent and its variants during one reconciliation. Mutates."""

    def __init__(
        self, parent: Workload, variants: Iterable[Workload], queue: ClusterQueue, now: Time, granular: bool
    ) -> None:
        self._ranks = flavor_ranks(queue)
        self._policy = queue.concurrent_admission or ConcurrentAdmission()
        self._now, self._granular = now, granular
        self._parent = parent
        self._variants = sorted(variants, key=self._rank)
        self._before = {workload.key: workload for workload in (parent, *self._variants)}
        self._created: list[Workload] = []
        self._deleted: list[str] = []
        self._events: list[KueueEvent] = []

    def result(self, again: Span | None = None) -> VariantsReconcileResult:
        everybody = (self._parent, *self._variants)
        return VariantsReconcileResult(
            changed=tuple(workload for workload in everybody if self._before[workload.key] is not workload),
            created=tuple(self._created),
            deleted=tuple(self._deleted),
            events=tuple(self._events),
            reconcile_after=again,
        )

    def create_missing(self) -> None:
        """Create variants for flavors that have none."""
        known = {flavor_of(variant) for variant in self._variants}
        for flavor in self._ranks:
            if flavor not in known:
                self._created.append(variant_of(self._parent, flavor))
                self._record_event(
                    self._parent, "CreatedVariant", f'Variant Workload "{self._created[-1].key}" created'
                )

    def delete_stale(self) -> None:
        """Delete the variants of flavors that the queue no longer has."""
        for variant in self._variants:
            flavor = flavor_of(variant)
            if flavor not in self._ranks:
                self._deleted.append(variant.key)
                message = f'Variant Workload "{variant.key}" deleted; flavor "{flavor}" no longer in ClusterQueue'
                self._record_event(self._parent, "DeletedVariant", message)
        self._variants = [variant for variant in self._variants if flavor_of(variant) in self._ranks]

    def propagate_eviction(self) -> bool:
        """Evict the parent when its variant is evicted; True while the variant's quota must wait for that."""
        leaving = [variant for variant in self._variants if variant.reserved and variant.is_true(conditions.EVICTED)]
        if not leaving:
            return False
        if self._parent.reserved:
            self._evict_parent("VariantEvicted", "Admitted variant was evicted")
            return True
        self._replace_variant(conditions.release_quota(leaving[0], self._now, granular=self._granular))
        return False

    def deactivate_variants(self) -> None:
        """Deactivate the variants that the policy excludes while another is admitted; all if the parent is inactive."""
        if not self._parent.active:
            self._deactivate(f'Parent Workload "{self._parent.key}" not active', lambda variant: True)
            return
        admitted = self._admitted_variants()
        if admitted is None:
            return
        if self._policy.mode is MigrationMode.RETAIN_FIRST_ADMISSION:
            reason = f'RetainFirstAdmission: another Variant "{admitted.key}" is admitted'
            self._deactivate(reason, lambda variant: variant.name != admitted.name)
            return
        last = self._policy.last_acceptable_flavor
        if last:
            lowest = self._ranks.get(last, 0)
            reason = f'being below lastAcceptableFlavor: "{last}" and another Variant admitted "{admitted.key}"'
            self._deactivate(reason, lambda variant: variant.name != admitted.name and self._rank(variant) > lowest)
        reason = f'being lower priority than admitted Variant "{admitted.key}"'
        self._deactivate(reason, lambda variant: self._rank(variant) > self._rank(admitted))

    def activate_variants(self) -> None:
        """Activate variants: all while none is admitted, afterwards, under TryPreferredFlavors, those on more preferred
        flavors.
        """
        admitted = self._admitted_variants()
        if not self._parent.active:
            return
        if admitted is None:
            self._activate("no other Variant being admitted", lambda variant: True)
        elif self._policy.mode is MigrationMode.TRY_PREFERRED_FLAVORS:
            last = self._policy.last_acceptable_flavor
            lowest = self._ranks.get(last, 0) if last else len(self._ranks)
            higher = f'higher priority than admitted Variant "{admitted.key}"'
            self._activate(
                f'being at least lastAcceptableFlavor: "{last}" and {higher}' if last else f"being {higher}",
                lambda variant: self._rank(variant) <= lowest and self._rank(variant) < self._rank(admitted),
            )

    def propagate_admission(self) -> None:
        """Copy the admitted variant's admission to the parent, and the parent's Finished and PodsReady to the variants.

        A parent that is admitted without an admitted variant is evicted.
        """
        finished = self._parent.condition(conditions.FINISHED)
        if finished is not None and finished.status:
            for variant in tuple(self._variants):
                self._replace_variant(conditions.mark_finished(variant, finished.reason, finished.message, self._now))
            return
        admitted = self._admitted_variants()
        if admitted is None:
            if self._parent.admitted:
                self._evict_parent("ConcurrentAdmission", "No variant is running")
            return
        ready = self._parent.condition("PodsReady")
        if ready is not None:
            self._replace_variant(admitted.with_condition(ready))
        if not self._parent.admitted and admitted.admission is not None:
            parent = conditions.reserve_quota(self._parent, admitted.admission, self._now)
            message = f"The variant {admitted.name} is admitted"
            shown = Condition(conditions.ADMITTED, True, conditions.ADMITTED, message, self._now)
            self._parent = parent.with_condition(shown)

    def open_gate(self) -> Span | None:
        """Open the preemption gate of the best variant that needs it; returns the time until the next reconciliation,
        if any.
        """
        admissible = [variant for variant in self._variants if _is_admissible(variant)]
        candidate = first_gated_variant(admissible)
        if candidate is None:
            return None
        opened = max(
            (gate.since or 0 for variant in admissible if (gate := _variant_gate(variant)) and gate.open), default=None
        )
        if opened is not None and self._now - opened < VARIANT_WAIT:
            return VARIANT_WAIT - (self._now - opened)
        gates = (
            replace(gate, open=True, since=self._now) if gate.name == GATE else gate
            for gate in candidate.preemption_gates
        )
        self._replace_variant(replace(candidate, preemption_gates=tuple(gates)))
        message = f'Opened preemption gate for variant workload "{candidate.key}"'
        self._record_event(candidate, "PreemptionUngatedVariant", message)
        return VARIANT_WAIT

    def _rank(self, variant: Workload) -> int:
        return self._ranks.get(flavor_of(variant), 0)

    def _admitted_variants(self) -> Workload | None:
        return next((variant for variant in self._variants if variant.admitted), None)

    def _evict_parent(self, reason: str, message: str) -> None:
        if not self._parent.is_true(conditions.EVICTED):
            evicted = Condition(conditions.EVICTED, True, reason, message, self._now)
            self._parent = self._parent.with_condition(evicted)

    def _deactivate(self, reason: str, chosen: Callable[[Workload], bool]) -> None:
        for variant in [variant for variant in self._variants if chosen(variant)]:
            stopped = variant
            if variant.active:
                stopped = replace(variant, active=False)
                self._record_event(variant, "DeactivatedVariant", f"Variant Workload deactivated due to {reason}")
            if stopped.reserved and stopped.is_true(conditions.EVICTED):
                stopped = conditions.release_quota(stopped, self._now, granular=self._granular)
            self._replace_variant(stopped)

    def _activate(self, reason: str, chosen: Callable[[Workload], bool]) -> None:
        for variant in [variant for variant in self._variants if not variant.active and chosen(variant)]:
            self._replace_variant(replace(variant, active=True))
            self._record_event(variant, "ActivatedVariant", f"Variant Workload activated due to {reason}")

    def _replace_variant(self, variant: Workload) -> None:
        self._variants = [variant if other.key == variant.key else other for other in self._variants]

    def _record_event(self, workload: Workload, reason: str, message: str) -> None:
        self._events.append(KueueEvent(workload.key, reason, message))


def _is_admissible(variant: Workload) -> bool:
    """True if the scheduler would try it."""
    return not (
        variant.annotations.get(ADMISSION_GATED_BY)
        or variant.finished
        or not variant.active
        or variant.reserved
        or conditions.is_on_hold(variant)
        or variant.is_true(WAITING_FOR_REPLACEMENT)
    )


def _variant_gate(variant: Workload) -> PreemptionGate | None:
    return next((gate for gate in variant.preemption_gates if gate.name == GATE), None)


def first_gated_variant(admissible: Iterable[Workload]) -> Workload | None:
    """Return the first variant that waits for its preemption gate; None while an earlier one has not been tried.

    `admissible` are the variants in order of preference.
    """
    for variant in admissible:
        gate = _variant_gate(variant)
        if gate is not None and gate.open:
            continue
        if variant.is_true(conditions.BLOCKED_ON_GATES):
            return variant
        if variant.condition(conditions.QUOTA_RESERVED) is None:
            return None
    return None
