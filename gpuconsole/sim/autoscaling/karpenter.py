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
from gpuconsole.sim.autoscaling.disruption import AutoscalerView, DisruptionCandidate, Move
from gpuconsole.sim.autoscaling.evictions import blocked, forbidden
from gpuconsole.sim.autoscaling.machines import DISRUPTED
from gpuconsole.sim.autoscaling.policy import DisruptionOrder, KarpenterPolicy, Proposal
from gpuconsole.sim.autoscaling.provisioning import (
    PlannedNode,
    PoolOffering,
    choose_offering,
    drifted,
    is_unavailable,
    plan,
    tainted,
    untainted,
)
from gpuconsole.sim.kernel import Act, AutoscalerTick
from gpuconsole.sim.world import World

NO_CAPACITY = "insufficient capacity, all requested instance types were unavailable during launch"


def batch_pods(world: World, policy: KarpenterPolicy) -> None:
    """Batch unschedulable pods and pods of draining nodes; each new one extends the batch by a second, up to ten."""
    fleet, now = world.fleet, world.now
    known = set(fleet.batched)
    wanting = [*fleet.waiting, *(_homeless(world) if fleet.draining else ())]
    new = [key for key in wanting if key not in known]
    if not new:
        return
    if fleet.batch is None:
        fleet.batch = now
    fleet.batched = (*fleet.batched, *new)
    fleet.look = min(fleet.batch + policy.batch_most, now + policy.batch_idle)
    world.kernel.at(fleet.look, AutoscalerTick(Act.PROVISION))


def _homeless(world: World) -> list[str]:
    """Pods on draining nodes, whose owners will recreate them."""
    pods: Iterable[Pod] = world.state.table("pods").all()
    return [pod.key for pod in pods if pod.node in world.fleet.draining and not pod.done and (pod.job or pod.workload)]


def provision_nodes(world: World, policy: KarpenterPolicy) -> None:
    """End the batch: launch the nodes that its pods need."""
    fleet = world.fleet
    if fleet.look is None or world.now < fleet.look:
        return
    fleet.look = fleet.batch = None
    view = AutoscalerView(world, policy.catalogue)
    wanting = [*view.waiting, *view.homeless]
    if not wanting:
        return
    firm = [pod.key for pod in wanting if (pod.workload or pod.job or pod.key) in fleet.fallen]
    result = plan(wanting, view.rooms(), view.pools, view.shapes, firm)
    for key, reason in sorted(result.failed.items()):
        machines.say(world, "FailedScheduling", f"Failed to schedule pod, {reason}", about=f"Pod/{key}", pod=key)
    for planned in result.new:
        launch_planned(world, policy, planned)
    fleet.batched = tuple(pod.key for pod in wanting)
    _retry(world)


def _retry(world: World) -> None:
    """Retry the remaining pods when an unavailable offering may be tried again."""
    fleet = world.fleet
    later = min((until for until in fleet.shunned.values() if until > world.now), default=None)
    if later is not None and fleet.waiting and fleet.look is None:
        fleet.look = later
        world.kernel.at(later, AutoscalerTick(Act.PROVISION))


def launch_planned(world: World, policy: KarpenterPolicy, planned: PlannedNode, why: str = "") -> str:
    """Launch the planned node, for a disruption if `why` is given; returns its name, empty if no offering is left."""
    offer = _available(world, policy, planned)
    if offer is None:
        machines.say(world, "InsufficientCapacityError", NO_CAPACITY, about=f"NodePool/{planned.pool}")
        return ""
    instance = machines.launch(world, planned.pool, offer.offering)
    machines.start(world, instance)
    text = (
        f"Launching NodeClaim: {why}" if why else f"Launched {offer.type} ({instance.capacity_type}, {instance.zone})"
    )
    machines.say(world, "DisruptionLaunching" if why else "Launched", text, node=instance.name)
    return instance.name


def _available(world: World, policy: KarpenterPolicy, planned: PlannedNode) -> PoolOffering | None:
    """The offering to launch; an unavailable one is skipped for a while."""
    fleet, group = world.fleet, machines.group_of(world, planned.pool)

    def untried(offer: PoolOffering) -> bool:
        return fleet.shunned.get(offer.offering.key, world.now) <= world.now

    while (offer := choose_offering(planned.offers, group.instances, untried, world.policy.spot)) is not None:
        if not is_unavailable(offer.offering.key, policy.unavailable):
            return offer
        fleet.shunned[offer.offering.key] = world.now + world.policy.spot.shun
    return None


EMPTY, DRIFTED, UNDERUTILIZED, EXPIRED = "Empty", "Drifted", "Underutilized", "Expired"
QUARTER = 15 * MINUTE
MULTI, SINGLE = "multi", "single"


def gather(world: World, policy: KarpenterPolicy) -> None:
    """After changes, continue the disruptions that are under way, and set the timers that the changes require."""
    _continue_orders(world)
    batch_pods(world, policy)
    poll(world, next_multiple(world.now, policy.poll))


def poll(world: World, at: Time) -> None:
    """Schedule a disruption round at this moment, unless one is due earlier."""
    fleet = world.fleet
    if fleet.poll is None or fleet.poll <= world.now or at < fleet.poll:
        fleet.poll = at
        world.kernel.at(at, AutoscalerTick(Act.DISRUPT))


def disrupt(world: World, policy: KarpenterPolicy) -> None:
    """Evaluate the disruption candidates, and start the first disruption that applies."""
    fleet, now = world.fleet, world.now
    if fleet.poll is None or now < fleet.poll:
        return
    fleet.poll = None
    if fleet.proposal is not None and now < fleet.proposal.due:
        poll(world, fleet.proposal.due)
        return
    view = AutoscalerView(world, policy.catalogue)
    round_ = _Round(world, view, policy)
    if fleet.proposal is not None:
        proposal, fleet.proposal = fleet.proposal, None
        round_.validate(proposal)
        poll(world, next_multiple(now, policy.poll))
        return
    fleet.proposal = round_.empty()
    if fleet.proposal is None and round_.drift():
        poll(world, next_multiple(now, policy.poll))
        return
    fleet.proposal = fleet.proposal or round_.several() or round_.single()
    if fleet.proposal is not None:
        poll(world, fleet.proposal.due)
    elif (later := round_.later()) is not None:
        poll(world, next_multiple(later - 1, policy.poll))


def expire(world: World, name: str) -> None:
    """Drain a node that reached its expireAfter, whatever the budgets."""
    found = machines.find(world, name)
    if found is not None and found[1].leaving is None:
        machines.say(world, "DisruptionTerminating", f"Disrupting Node: {EXPIRED}", node=name)
        machines.drain(world, name, EXPIRED, DISRUPTED)


class _Round:
    """One round of disruption."""

    def __init__(self, world: World, view: AutoscalerView, policy: KarpenterPolicy) -> None:
        self.world, self.view, self.policy = world, view, policy
        self.eventual: list[DisruptionCandidate] = []
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
                one = disruption.candidate(view, pool, instance, pods)
                why = forbidden(node) or blocked(pods, view.allowances)
                if why and not forbidden(node) and pool.termination_grace is not None:
                    self.eventual.append(one)
                if why:
                    machines.say(self.world, "DisruptionBlocked", why, node=node.name)
                else:
                    yield one

    def _allowed(self, reason: str) -> dict[str, int]:
        """The number of nodes of each pool that may be disrupted now for this reason."""
        found = {}
        for name, pool in self.view.node_pools.items():
            group = self.view.groups.get(name)
            machines_ = group.instances if group is not None else ()
            there = [i for i in machines_ if i.ready is not None and i.name in self.view.nodes]
            busy = sum(i.leaving is not None or not self.view.nodes[i.name].ready for i in there)
            if there and not disruption.allowed(pool, reason, len(there), 0, self.view.now):
                text = f"No allowed disruptions for disruption reason {reason} due to blocking budget"
                machines.say(self.world, "DisruptionBlocked", text, about=f"NodePool/{name}/{reason}")
            found[name] = disruption.allowed(pool, reason, len(there), busy, self.view.now)
        return found

    def _within(self, candidates: Iterable[DisruptionCandidate], reason: str) -> list[DisruptionCandidate]:
        """The candidates that the budgets allow, in this order."""
        left, taken = self._allowed(reason), []
        for one in candidates:
            if left[one.pool.name] < 1:
                self.constrained = True
                continue
            left[one.pool.name] -= 1
            taken.append(one)
        return taken

    def _ripe(self) -> list[DisruptionCandidate]:
        """Candidates without pod events for as long as their pool's consolidateAfter."""
        return [one for one in self.candidates if (due := self._due(one)) is not None and due <= self.view.now]

    def _due(self, one: DisruptionCandidate) -> Time | None:
        span = disruption.waits_for(one.pool)
        if span is None:
            self._unconsolidatable(one, f'NodePool "{one.pool.name}" has consolidation disabled')
            return None
        return self.world.fleet.moved.get(one.node, one.instance.launched) + span

    def empty(self) -> Proposal | None:
        """Remove nodes without pods."""
        empty = [one for one in self._ripe() if one.empty]
        return self._propose(EMPTY, self._within(disruption.sorted_candidates(empty), EMPTY)) if empty else None

    def drift(self) -> bool:
        """Replace one drifted node, an empty one first; True if one is replaced."""
        found = [one for one in (*self.candidates, *self.eventual) if drifted(one.pool, self.view.nodes[one.node])]
        ordered = sorted(found, key=lambda one: (not one.empty, one.instance.launched, one.node))
        for one in self._within(ordered, DRIFTED) if ordered else ():
            move, why = disruption.replacement_of(self.view, one)
            if move is None:
                machines.say(self.world, "DisruptionBlocked", why, node=one.node)
            elif self._carry_out(DRIFTED, move):
                return True
        return False

    def _underutilized(self) -> list[DisruptionCandidate]:
        found = []
        for one in self._ripe():
            if one.pool.consolidation_policy == "WhenEmpty" and not one.empty:
                text = f'NodePool "{one.pool.name}" has consolidation policy WhenEmpty, but node is not empty'
                self._unconsolidatable(one, text)
            elif not one.empty:
                found.append(one)
        return self._within(disruption.sorted_candidates(found), UNDERUTILIZED) if found else []

    def several(self) -> Proposal | None:
        """Consolidate several nodes at once."""
        chosen = self._underutilized()
        move = disruption.multi_node(self.view, chosen, spot_to_spot=self.policy.spot_to_spot)
        return None if move is None else self._propose(MULTI, [one for one in chosen if one.node in move.nodes])

    def single(self) -> Proposal | None:
        """Consolidate the first node for which it is possible."""
        for one in self._underutilized():
            move, why = disruption.consolidate(self.view, (one,), spot_to_spot=self.policy.spot_to_spot)
            if move is None:
                self._unconsolidatable(one, why)
                continue
            ok, score = disruption.approved(self.view, move, (one,))
            if score:
                machines.say(
                    self.world, "ConsolidationApproved" if ok else "ConsolidationRejected", score, node=one.node
                )
            if ok:
                return self._propose(SINGLE, [one])
        return None

    def _propose(self, method: str, chosen: Sequence[DisruptionCandidate]) -> Proposal | None:
        if not chosen:
            return None
        return Proposal(method, tuple(one.node for one in chosen), self.view.now + self.policy.validation)

    def validate(self, proposal: Proposal) -> None:
        """Compute a proposed consolidation again, and carry it out if it is still valid."""
        reason = EMPTY if proposal.method == EMPTY else UNDERUTILIZED
        ripe = [one for one in self._ripe() if one.node in proposal.nodes and one.empty == (reason == EMPTY)]
        order = {name: place for place, name in enumerate(proposal.nodes)}
        chosen = self._within(sorted(ripe, key=lambda one: order[one.node]), reason)
        move: Move | None = None
        if len(chosen) == len(proposal.nodes):
            if reason == EMPTY:
                move = Move(proposal.nodes)
            elif proposal.method == SINGLE:
                move, _ = disruption.consolidate(self.view, chosen, spot_to_spot=self.policy.spot_to_spot)
            else:
                move = disruption.multi_node(self.view, chosen, spot_to_spot=self.policy.spot_to_spot)
                move = move if move is not None and set(move.nodes) == set(proposal.nodes) else None
        if move is not None:
            self._carry_out(reason, move)
        elif reason != EMPTY:
            names = ", ".join(proposal.nodes)
            text = f"Consolidation rejected: [{names}], reason: the cluster has changed (savings: $0.00)"
            machines.say(self.world, "ConsolidationRejected", text, about=f"Proposal/{names}/{self.view.now}")

    def _carry_out(self, reason: str, move: Move) -> bool:
        """Launch the replacement, and drain the nodes when it is ready; False if no offering is available."""
        world = self.world
        wanted = (move.new, *move.more) if move.new is not None else ()
        new = tuple(launch_planned(world, self.policy, planned, reason) for planned in wanted)
        if not all(new):
            return False
        for node in move.nodes:
            _mark(world, node, reason)
        world.fleet.orders.append(DisruptionOrder(reason, move.nodes, new))
        _continue_orders(world)
        return True

    def later(self) -> Time | None:
        """The next moment at which a round could find more without any change."""
        dues = [due for one in self.candidates if (due := self._due(one)) is not None and due > self.view.now]
        if self.constrained:
            dues.append(next_multiple(self.view.now, MINUTE))
        return min(dues, default=None)

    def _unconsolidatable(self, one: DisruptionCandidate, why: str) -> None:
        """Record why a node is not consolidated, at most every 15 minutes."""
        hushed, now = self.world.fleet.hushed, self.view.now
        if hushed.get(one.node, now) <= now:
            hushed[one.node] = now + QUARTER
            machines.say(self.world, "Unconsolidatable", why, node=one.node)


def _mark(world: World, name: str, reason: str) -> None:
    """Taint the node against new pods; it is drained when its replacement is ready."""
    node, found = world.node(name), machines.find(world, name)
    if node is not None:
        world.put(tainted(node, DISRUPTED))
    if found is not None:
        machines.change(world, replace(found[1], leaving=world.now, reason=reason))


def _continue_orders(world: World) -> None:
    """Drain nodes whose replacement is ready; cancel the disruption if the replacement will never join."""
    fleet = world.fleet
    for order in list(fleet.orders):
        found = [machines.find(world, name) for name in order.replacements]
        if any(one is None or one[1].leaving is not None for one in found):
            fleet.orders.remove(order)
            for name in order.nodes:
                _spare(world, name, order.reason)
        elif all(one is not None and one[1].ready is not None for one in found):
            fleet.orders.remove(order)
            for name in order.nodes:
                machines.say(world, "DisruptionTerminating", f"Disrupting Node: {order.reason}", node=name)
                machines.drain(world, name, order.reason, DISRUPTED)


def _spare(world: World, name: str, reason: str) -> None:
    node, found = world.node(name), machines.find(world, name)
    if node is not None and found is not None and found[1].reason == reason:
        world.put(untainted(node, DISRUPTED))
        machines.change(world, replace(found[1], leaving=None, reason=""))
