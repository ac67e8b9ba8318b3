"""The cluster as an autoscaler sees it in one scan: nodes with pods, starting machines, unschedulable pods."""

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

from gpuconsole.model.autoscaling import GROUP, POOL, NodeGroup, NodePool, ProvisionedInstance
from gpuconsole.model.catalogue import InstanceTypeCatalogue
from gpuconsole.model.clock import Time
from gpuconsole.model.cluster import Node, Pod, PodDisruptionBudget
from gpuconsole.model.resources import Resources, add
from gpuconsole.scheduling.kube.pod_classes import PodClasses
from gpuconsole.sim.autoscaling.evictions import Allowances
from gpuconsole.sim.autoscaling.node_fit import NodeFit, node_fits_of, node_of
from gpuconsole.sim.autoscaling.provisioning import PoolOffering, Pools, offers_of
from gpuconsole.sim.world import World


class AutoscalerView:
    """The view of one scan. Immutable."""

    def __init__(self, world: World, catalogue: InstanceTypeCatalogue) -> None:
        state = world.state
        self.now: Time = world.now
        self.catalogue = catalogue
        self.shapes = PodClasses()
        self._memo = world.offers
        self._equipment = world.policy.equipment
        self.nodes: dict[str, Node] = {node.name: node for node in state.table("nodes").all()}
        self.groups: dict[str, NodeGroup] = {group.name: group for group in state.table("node_groups").all()}
        self.node_pools: dict[str, NodePool] = {pool.name: pool for pool in state.table("node_pools").all()}
        self.everyone: list[Pod] = [pod for pod in state.table("pods").all() if not pod.done]
        self.pods: dict[str, list[Pod]] = {}
        for pod in self.everyone:
            if pod.node:
                self.pods.setdefault(pod.node, []).append(pod)
        self.drained: frozenset[str] = frozenset(world.fleet.draining)
        waiting = (world.pod(key) for key in world.fleet.waiting)
        self.waiting: list[Pod] = [pod for pod in waiting if pod is not None]
        self._budgets: list[PodDisruptionBudget] = list(state.table("pod_disruption_budgets").all())

    @cached_property
    def allowances(self) -> Allowances:
        """The remaining disruptions of the PodDisruptionBudgets."""
        return Allowances(self._budgets, self.everyone)

    @cached_property
    def offers(self) -> Mapping[str, list[PoolOffering]]:
        """The offerings of every NodePool."""
        return {name: self._offers_of(pool) for name, pool in self.node_pools.items()}

    def _offers_of(self, pool: NodePool) -> list[PoolOffering]:
        known = self._memo.get(id(pool))
        if known is None:
            known = self._memo[id(pool)] = (pool, offers_of(pool, self.catalogue, self._equipment))
        return known[1]

    def instances(self) -> Iterable[ProvisionedInstance]:
        """The machines of all groups."""
        return (instance for group in self.groups.values() for instance in group.instances)

    @cached_property
    def leaving(self) -> set[str]:
        """Nodes that are being removed."""
        return {instance.name for instance in self.instances() if instance.leaving is not None}

    @cached_property
    def homeless(self) -> list[Pod]:
        """Pods on draining nodes, which their owners will recreate elsewhere."""
        names = sorted(self.drained)
        return [pod for name in names for pod in self.pods.get(name, ()) if pod.job or pod.workload]

    @cached_property
    def starting(self) -> list[ProvisionedInstance]:
        """Machines whose nodes have not joined yet."""
        return [i for i in self.instances() if i.ready is None and i.leaving is None]

    def rooms(self, without: Iterable[str] = ()) -> list[NodeFit]:
        """Capacity for moved pods: remaining nodes, without those named, then starting machines."""
        gone = set(without)
        return [room.copy() for room in self._rooms if room.node.name not in gone]

    @cached_property
    def _rooms(self) -> list[NodeFit]:
        there = node_fits_of(self.nodes.values(), self.pods, self.shapes, self.leaving)
        return [*there, *(NodeFit(node) for node in map(self._future, self.starting) if node is not None)]

    def _future(self, instance: ProvisionedInstance) -> Node | None:
        kind = self.catalogue.types.get(instance.type)
        group = instance.name.rpartition("-")[0]
        if kind is None:
            return None
        pool, equipment = self.node_pools.get(group), self._equipment
        if pool is not None:
            return node_of(instance, kind, self.now, {**pool.labels, POOL: pool.name}, pool.taints, equipment)
        return node_of(instance, kind, self.now, {GROUP: group}, equipment=equipment)

    @cached_property
    def pools(self) -> Pools:
        """The NodePools, and what their limits leave."""
        return Pools(self.node_pools.values(), self.offers, {name: self._used(name) for name in self.node_pools})

    def _used(self, pool: str) -> Resources:
        group = self.groups.get(pool)
        machines: Sequence[ProvisionedInstance] = group.instances if group is not None else ()
        kinds = (self.catalogue.types.get(machine.type) for machine in machines)
        return add(*(kind.capacity for kind in kinds if kind is not None))
