"""Karpenter in the simulation: provisions nodes for batches of pods, and disrupts nodes that cost more than needed.

A batch ends when no pod arrived for a second, after ten seconds at most; then nodes are planned for its pods, and
launched. Every ten seconds nodes are evaluated in this order: Emptiness, Drift, multi-node, single-node consolidation;
a consolidation is validated again after fifteen seconds. A disrupted node is tainted first, and drained when its
replacement is ready. Expiry and spot interruption are forceful: they ignore budgets. (Karpenter 1.x; NodePools with
replicas are ignored.)
"""

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from gpuconsole.model.clock import MINUTE, Time, next_multiple
from gpuconsole.model.cluster import Pod
from gpuconsole.sim.autoscaling import disruption, machines
from gpuconsole.sim.autoscaling.disruption import (
    AutoscalerView,
    ConsolidationMove,
    DisruptionCandidate,
    node_disruption_blocker,
    pods_disruption_blocker,
)
from gpuconsole.sim.autoscaling.machines import DISRUPTED
from gpuconsole.sim.autoscaling.provisioning import (
    PlannedNode,
    PoolOffering,
    choose_offering,
    drift_reason,
    is_unavailable,
    plan_nodes,
    with_taint,
    without_taint,
)
from gpuconsole.sim.kernel import AutoscalerAction, AutoscalerTick
from gpuconsole.sim.policy import DisruptionOrder, KarpenterPolicy, Proposal
from gpuconsole.sim.world import World

NO_CAPACITY = "insufficient capacity, all requested instance types were unavailable during launch"


def batch_pods(world: World, policy: KarpenterPolicy) -> None:
    """Batch unschedulable pods and pods of draining nodes; each new one extends the batch by a second, up to ten."""
    fleet, now = world.autoscaler_state, world.now
    known = set(fleet.batched_pods)
    wanting = [*fleet.unschedulable_since, *(_pods_on_draining_nodes(world) if fleet.draining else ())]
    new = [key for key in wanting if key not in known]
    if not new:
        return
    if fleet.batch_started is None:
        fleet.batch_started = now
    fleet.batched_pods = (*fleet.batched_pods, *new)
    fleet.next_scan = min(fleet.batch_started + policy.batch_max, now + policy.batch_idle)
    world.kernel.set_timer(fleet.next_scan, AutoscalerTick(AutoscalerAction.PROVISION))


def _pods_on_draining_nodes(world: World) -> list[str]:
    """Pods on draining nodes, whose owners will recreate them."""
    pods: Iterable[Pod] = world.state.table("pods").all()
    return [
        pod.key
        for pod in pods
        if pod.node in world.autoscaler_state.draining and not pod.done and (pod.job or pod.workload)
    ]


def provision_nodes(world: World, policy: KarpenterPolicy) -> None:
    """End the batch: launch the nodes that its pods need."""
    fleet = world.autoscaler_state
    if fleet.next_scan is None or world.now < fleet.next_scan:
        return
    fleet.next_scan = fleet.batch_started = None
    view = AutoscalerView(world, policy.catalogue)
    wanting = [*view.unschedulable, *view.pods_on_draining_nodes]
    if not wanting:
        return
    firm = [pod.key for pod in wanting if (pod.workload or pod.job or pod.key) in fleet.lost_spot_workloads]
    result = plan_nodes(wanting, view.free_capacity(), view.pools, view.pod_classes, firm)
    for key, reason in sorted(result.failed.items()):
        machines.record_event(
            world, "FailedScheduling", f"Failed to schedule pod, {reason}", about=f"Pod/{key}", pod=key
        )
    for planned in result.new:
        launch_planned(world, policy, planned)
    fleet.batched_pods = tuple(pod.key for pod in wanting)
    _retry_pods(world)


def _retry_pods(world: World) -> None:
    """Retry the remaining pods when an unavailable offering may be tried again."""
    fleet = world.autoscaler_state
    later = min((until for until in fleet.unavailable_until.values() if until > world.now), default=None)
    if later is not None and fleet.unschedulable_since and fleet.next_scan is None:
        fleet.next_scan = later
        world.kernel.set_timer(later, AutoscalerTick(AutoscalerAction.PROVISION))


def launch_planned(world: World, policy: KarpenterPolicy, planned: PlannedNode, why: str = "") -> str:
    """Launch the planned node, for a disruption if `why` is given; returns its name, empty if no offering is left."""
    offer = _choose_available(world, policy, planned)
    if offer is None:
        machines.record_event(world, "InsufficientCapacityError", NO_CAPACITY, about=f"NodePool/{planned.pool}")
        return ""
    instance = machines.launch(world, planned.pool, offer.offering)
    machines.start_machine(world, instance)
    text = (
        f"Launching NodeClaim: {why}" if why else f"Launched {offer.type} ({instance.capacity_type}, {instance.zone})"
    )
    machines.record_event(world, "DisruptionLaunching" if why else "Launched", text, node=instance.name)
    return instance.name


def _choose_available(world: World, policy: KarpenterPolicy, planned: PlannedNode) -> PoolOffering | None:
    """The offering to launch; an unavailable one is skipped for a while."""
    fleet, group = world.autoscaler_state, machines.group_of(world, planned.pool)

    def untried(offer: PoolOffering) -> bool:
        return fleet.unavailable_until.get(offer.offering.key, world.now) <= world.now

    while (offer := choose_offering(planned.offers, group.instances, untried, world.policy.spot)) is not None:
        if not is_unavailable(offer.offering.key, policy.unavailable):
            return offer
        fleet.unavailable_until[offer.offering.key] = world.now + world.policy.spot.retry_after
    return None


EMPTY, DRIFTED, UNDERUTILIZED, EXPIRED = "Empty", "Drifted", "Underutilized", "Expired"
QUARTER = 15 * MINUTE
MULTI, SINGLE = "multi", "single"


def react_to_changes(world: World, policy: KarpenterPolicy) -> None:
    """After changes, continue the disruptions that are under way, and set the timers that the changes require."""
    _continue_disruptions(world)
    batch_pods(world, policy)
    set_disruption_timer(world, next_multiple(world.now, policy.poll))


def set_disruption_timer(world: World, at: Time) -> None:
    """Schedule a disruption round at this moment, unless one is due earlier."""
    fleet = world.autoscaler_state
    if (
        fleet.next_disruption_round is None
        or fleet.next_disruption_round <= world.now
        or at < fleet.next_disruption_round
    ):
        fleet.next_disruption_round = at
        world.kernel.set_timer(at, AutoscalerTick(AutoscalerAction.DISRUPT))


def run_disruption(world: World, policy: KarpenterPolicy) -> None:
    """Evaluate the disruption candidates, and start the first disruption that applies."""
    fleet, now = world.autoscaler_state, world.now
    if fleet.next_disruption_round is None or now < fleet.next_disruption_round:
        return
    fleet.next_disruption_round = None
    if fleet.proposal is not None and now < fleet.proposal.due:
        set_disruption_timer(world, fleet.proposal.due)
        return
    view = AutoscalerView(world, policy.catalogue)
    round_ = _DisruptionRound(world, view, policy)
    if fleet.proposal is not None:
        proposal, fleet.proposal = fleet.proposal, None
        round_.is_still_valid(proposal)
        set_disruption_timer(world, next_multiple(now, policy.poll))
        return
    fleet.proposal = round_.empty_nodes()
    if fleet.proposal is None and round_.drifted_node():
        set_disruption_timer(world, next_multiple(now, policy.poll))
        return
    fleet.proposal = fleet.proposal or round_.multi_node() or round_.single_node()
    if fleet.proposal is not None:
        set_disruption_timer(world, fleet.proposal.due)
    elif (later := round_.next_round_time()) is not None:
        set_disruption_timer(world, next_multiple(later - 1, policy.poll))


def expire_node(world: World, name: str) -> None:
    """Drain a node that reached its expireAfter, whatever the budgets."""
    found = machines.find_machine(world, name)
    if found is not None and found[1].leaving is None:
        machines.record_event(world, "DisruptionTerminating", f"Disrupting Node: {EXPIRED}", node=name)
        machines.drain_node(world, name, EXPIRED, DISRUPTED)


class _DisruptionRound:
    """One round of disruption."""

    def __init__(self, world: World, view: AutoscalerView, policy: KarpenterPolicy) -> None:
        self.world, self.view, self.policy = world, view, policy
        self.drift_candidates: list[DisruptionCandidate] = []
        """Nodes whose pods block disruption, but whose pool has a terminationGracePeriod: drift still replaces them."""
        self.candidates = list(self._candidates())
        self.constrained = False

    def _candidates(self) -> Iterable[DisruptionCandidate]:
        """Ready nodes of pools whose disruption nothing forbids."""
        view = self.view
        for name, group in sorted(view.groups.items()):
            pool = view.node_pools.get(name)
            for instance in group.instances:
                node = view.nodes.get(instance.name)
                if pool is None or pool.replicas is not None or node is None or not node.ready:
                    continue
                if instance.ready is None or instance.leaving is not None:
                    continue
                pods = view.pods.get(node.name, ())
                candidate = disruption.new_candidate(view, pool, instance, pods)
                why = node_disruption_blocker(node) or pods_disruption_blocker(pods, view.allowances)
                if why and not node_disruption_blocker(node) and pool.termination_grace is not None:
                    self.drift_candidates.append(candidate)
                if why:
                    machines.record_event(self.world, "DisruptionBlocked", why, node=node.name)
                else:
                    yield candidate

    def _allowed_by_pool(self, reason: str) -> dict[str, int]:
        """The number of nodes of each pool that may be disrupted now for this reason."""
        found = {}
        for name, pool in self.view.node_pools.items():
            group = self.view.groups.get(name)
            machines_ = group.instances if group is not None else ()
            there = [i for i in machines_ if i.ready is not None and i.name in self.view.nodes]
            busy = sum(i.leaving is not None or not self.view.nodes[i.name].ready for i in there)
            if there and not disruption.allowed_disruptions(pool, reason, len(there), 0, self.view.now):
                text = f"No allowed disruptions for disruption reason {reason} due to blocking budget"
                machines.record_event(self.world, "DisruptionBlocked", text, about=f"NodePool/{name}/{reason}")
            found[name] = disruption.allowed_disruptions(pool, reason, len(there), busy, self.view.now)
        return found

    def _within_budgets(self, candidates: Iterable[DisruptionCandidate], reason: str) -> list[DisruptionCandidate]:
        """The candidates that the budgets allow, in this order."""
        left, taken = self._allowed_by_pool(reason), []
        for candidate in candidates:
            if left[candidate.pool.name] < 1:
                self.constrained = True
                continue
            left[candidate.pool.name] -= 1
            taken.append(candidate)
        return taken

    def _consolidatable(self) -> list[DisruptionCandidate]:
        """Candidates without pod events for as long as their pool's consolidateAfter."""
        return [
            candidate
            for candidate in self.candidates
            if (due := self._consolidatable_at(candidate)) is not None and due <= self.view.now
        ]

    def _consolidatable_at(self, candidate: DisruptionCandidate) -> Time | None:
        span = disruption.consolidate_after(candidate.pool)
        if span is None:
            self._record_unconsolidatable(candidate, f'NodePool "{candidate.pool.name}" has consolidation disabled')
            return None
        return self.world.autoscaler_state.last_pod_event.get(candidate.node, candidate.instance.launched) + span

    def empty_nodes(self) -> Proposal | None:
        """Remove nodes without pods."""
        empty = [candidate for candidate in self._consolidatable() if candidate.is_empty]
        return (
            self._new_proposal(EMPTY, self._within_budgets(disruption.sorted_candidates(empty), EMPTY))
            if empty
            else None
        )

    def drifted_node(self) -> bool:
        """Replace one drifted node, an empty one first; True if one is replaced."""
        found = [
            candidate
            for candidate in (*self.candidates, *self.drift_candidates)
            if drift_reason(candidate.pool, self.view.nodes[candidate.node])
        ]
        ordered = sorted(
            found, key=lambda candidate: (not candidate.is_empty, candidate.instance.launched, candidate.node)
        )
        for candidate in self._within_budgets(ordered, DRIFTED) if ordered else ():
            move, why = disruption.plan_drift_replacement(self.view, candidate)
            if move is None:
                machines.record_event(self.world, "DisruptionBlocked", why, node=candidate.node)
            elif self._start_disruption(DRIFTED, move):
                return True
        return False

    def _underutilized(self) -> list[DisruptionCandidate]:
        found = []
        for candidate in self._consolidatable():
            if candidate.pool.consolidation_policy == "WhenEmpty" and not candidate.is_empty:
                text = f'NodePool "{candidate.pool.name}" has consolidation policy WhenEmpty, but node is not empty'
                self._record_unconsolidatable(candidate, text)
            elif not candidate.is_empty:
                found.append(candidate)
        return self._within_budgets(disruption.sorted_candidates(found), UNDERUTILIZED) if found else []

    def multi_node(self) -> Proposal | None:
        """Consolidate several nodes at once."""
        chosen = self._underutilized()
        move = disruption.plan_multi_node(self.view, chosen, spot_to_spot=self.policy.spot_to_spot)
        return (
            None
            if move is None
            else self._new_proposal(MULTI, [candidate for candidate in chosen if candidate.node in move.nodes])
        )

    def single_node(self) -> Proposal | None:
        """Consolidate the first node for which it is possible."""
        for candidate in self._underutilized():
            move, why = disruption.plan_consolidation(self.view, (candidate,), spot_to_spot=self.policy.spot_to_spot)
            if move is None:
                self._record_unconsolidatable(candidate, why)
                continue
            ok, score = disruption.is_approved(self.view, move, (candidate,))
            if score:
                machines.record_event(
                    self.world, "ConsolidationApproved" if ok else "ConsolidationRejected", score, node=candidate.node
                )
            if ok:
                return self._new_proposal(SINGLE, [candidate])
        return None

    def _new_proposal(self, method: str, chosen: Sequence[DisruptionCandidate]) -> Proposal | None:
        if not chosen:
            return None
        return Proposal(method, tuple(candidate.node for candidate in chosen), self.view.now + self.policy.validation)

    def is_still_valid(self, proposal: Proposal) -> None:
        """Compute a proposed consolidation again, and carry it out if it is still valid."""
        reason = EMPTY if proposal.method == EMPTY else UNDERUTILIZED
        ripe = [
            candidate
            for candidate in self._consolidatable()
            if candidate.node in proposal.nodes and candidate.is_empty == (reason == EMPTY)
        ]
        order = {name: place for place, name in enumerate(proposal.nodes)}
        chosen = self._within_budgets(sorted(ripe, key=lambda candidate: order[candidate.node]), reason)
        move: ConsolidationMove | None = None
        if len(chosen) == len(proposal.nodes):
            if reason == EMPTY:
                move = ConsolidationMove(proposal.nodes)
            elif proposal.method == SINGLE:
                move, _ = disruption.plan_consolidation(self.view, chosen, spot_to_spot=self.policy.spot_to_spot)
            else:
                move = disruption.plan_multi_node(self.view, chosen, spot_to_spot=self.policy.spot_to_spot)
                move = move if move is not None and set(move.nodes) == set(proposal.nodes) else None
        if move is not None:
            self._start_disruption(reason, move)
        elif reason != EMPTY:
            names = ", ".join(proposal.nodes)
            text = f"Consolidation rejected: [{names}], reason: the cluster has changed (savings: $0.00)"
            machines.record_event(self.world, "ConsolidationRejected", text, about=f"Proposal/{names}/{self.view.now}")

    def _start_disruption(self, reason: str, move: ConsolidationMove) -> bool:
        """Launch the replacement, and drain the nodes when it is ready; False if no offering is available."""
        world = self.world
        wanted = (move.replacement, *move.more_replacements) if move.replacement is not None else ()
        new = tuple(launch_planned(world, self.policy, planned, reason) for planned in wanted)
        if not all(new):
            return False
        for node in move.nodes:
            _taint_for_disruption(world, node, reason)
        world.autoscaler_state.orders.append(DisruptionOrder(reason, move.nodes, new))
        _continue_disruptions(world)
        return True

    def next_round_time(self) -> Time | None:
        """The next moment at which a round could find more without any change."""
        dues = [
            due
            for candidate in self.candidates
            if (due := self._consolidatable_at(candidate)) is not None and due > self.view.now
        ]
        if self.constrained:
            dues.append(next_multiple(self.view.now, MINUTE))
        return min(dues, default=None)

    def _record_unconsolidatable(self, candidate: DisruptionCandidate, why: str) -> None:
        """Record why a node is not consolidated, at most every 15 minutes."""
        hushed, now = self.world.autoscaler_state.silent_until, self.view.now
        if hushed.get(candidate.node, now) <= now:
            hushed[candidate.node] = now + QUARTER
            machines.record_event(self.world, "Unconsolidatable", why, node=candidate.node)


def _taint_for_disruption(world: World, name: str, reason: str) -> None:
    """Taint the node against new pods; it is drained when its replacement is ready."""
    node, found = world.node(name), machines.find_machine(world, name)
    if node is not None:
        world.put(with_taint(node, DISRUPTED))
    if found is not None:
        machines.store_machine(world, replace(found[1], leaving=world.now, reason=reason))


def _continue_disruptions(world: World) -> None:
    """Drain nodes whose replacement is ready; cancel the disruption if the replacement will never join."""
    fleet = world.autoscaler_state
    for order in list(fleet.orders):
        found = [machines.find_machine(world, name) for name in order.replacements]
        if any(candidate is None or candidate[1].leaving is not None for candidate in found):
            fleet.orders.remove(order)
            for name in order.nodes:
                _cancel_disruption(world, name, order.reason)
        elif all(candidate is not None and candidate[1].ready is not None for candidate in found):
            fleet.orders.remove(order)
            for name in order.nodes:
                machines.record_event(world, "DisruptionTerminating", f"Disrupting Node: {order.reason}", node=name)
                machines.drain_node(world, name, order.reason, DISRUPTED)


def _cancel_disruption(world: World, name: str, reason: str) -> None:
    node, found = world.node(name), machines.find_machine(world, name)
    if node is not None and found is not None and found[1].reason == reason:
        world.put(without_taint(node, DISRUPTED))
        machines.store_machine(world, replace(found[1], leaving=None, reason=""))
