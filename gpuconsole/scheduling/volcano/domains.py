"""Hyper nodes in a session: a tree with one root, topology constraints as tiers, and each job's current domain.

Volcano 1.15 framework/session.go. Opening replaces known tier names by tiers, and a soft constraint by a hard one whose
tier is that of the root, which every domain satisfies (for a sub-job that of its job, if it has one).
"""

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from gpuconsole.model.volcano import NetworkTopology
from gpuconsole.scheduling.volcano.api.hyper_nodes import HyperNodeInfo, lowest_common
from gpuconsole.scheduling.volcano.api.job import JobInfo
from gpuconsole.scheduling.volcano.api.node import NodeInfo
from gpuconsole.scheduling.volcano.api.status import ALLOCATED_STATUS
from gpuconsole.scheduling.volcano.api.sub_job import SubJobInfo

TOP = "<cluster-top-hypernode>"
"""The root of all hyper nodes, which contains every node."""


class HyperNodeDomains:
    """The hyper nodes of one session. Mutates once, when the session is opened."""

    def __init__(
        self,
        hyper_nodes: Mapping[str, HyperNodeInfo] | None = None,
        real_nodes: Mapping[str, Iterable[str]] | None = None,
        tier_names: Mapping[str, int] | None = None,
        *,
        by_tier: Mapping[int, Iterable[str]] | None = None,
        ready: bool = True,
    ) -> None:
        self.hyper_nodes = {
            name: replace(info, children=set(info.children)) for name, info in (hyper_nodes or {}).items()
        }
        self.real_nodes = {name: set(nodes) for name, nodes in (real_nodes or {}).items()}
        """Names of the nodes in each hyper node."""
        self.tier_names = dict(tier_names or {})
        self.by_tier = {tier: set(names) for tier, names in (by_tier or {}).items()}
        self.tiers: list[int] = []
        """All tiers, the lowest first."""
        self.ready = ready
        """False if the hyper nodes form no tree: jobs with a network topology are not scheduled then."""

    def open(self, jobs: Iterable[JobInfo], nodes: Mapping[str, NodeInfo]) -> None:
        """Add the root, and normalize the jobs' topology constraints and domains."""
        self.real_nodes = {name: names & nodes.keys() for name, names in self.real_nodes.items()}
        self._add_top(nodes)
        self.tiers = sorted(self.by_tier)
        for job in jobs:
            if job.contains_network_topology:
                number_tiers(job, self.tier_names)
                harden(job, self.hyper_nodes[TOP].tier)
            if self.ready:
                self._forget_places(job)
                self._find_places(job)

    def common(self, left: str, right: str) -> str:
        """The lowest common ancestor; an empty name is ignored. Empty if there is none."""
        return lowest_common(self.hyper_nodes, left, right)

    def lowest_of(self, node: str) -> str:
        """The hyper node of the lowest tier that contains a node; empty if there is none."""
        names = sorted(self.by_tier.get(self.tiers[0], ())) if self.tiers else ()
        return next((name for name in names if node in self.real_nodes.get(name, ())), "")

    def _add_top(self, nodes: Iterable[str]) -> None:
        tier = max((1, *(tier + 1 for tier in self.by_tier)))
        top = HyperNodeInfo(TOP, tier)
        for name, info in self.hyper_nodes.items():
            if not info.parent:
                info.parent = TOP
                top.children.add(name)
        self.hyper_nodes[TOP] = top
        self.by_tier[top.tier] = {TOP}
        self.real_nodes[TOP] = set(nodes)

    def _forget_places(self, job: JobInfo) -> None:
        """Clear domains that no longer exist or have no tasks."""
        units: list[JobInfo | SubJobInfo] = [job, *job.sub_jobs.values()]
        for unit in units:
            lost = unit.allocated_hyper_node not in self.hyper_nodes
            if unit.allocated_hyper_node and (lost or not unit.count(ALLOCATED_STATUS)):
                unit.allocated_hyper_node = ""

    def _find_places(self, job: JobInfo) -> None:
        """Infer an unknown domain: the lowest that contains all nodes with the job's tasks."""
        if not job.contains_network_topology:
            return
        changed = False
        for sub_job in job.sub_jobs.values():
            if sub_job.network_topology is not None and not sub_job.allocated_hyper_node:
                sub_job.allocated_hyper_node = self._place_of(sub_job)
                changed = changed or bool(sub_job.allocated_hyper_node)
        if job.allocated_hyper_node and not changed:
            return
        place = ""
        for _, sub_job in sorted(job.sub_jobs.items()):
            if sub_job.allocated_hyper_node:
                place = self.common(place, sub_job.allocated_hyper_node)
                if not place:
                    break
        job.allocated_hyper_node = place

    def _place_of(self, sub_job: SubJobInfo) -> str:
        held: set[str] | None = None
        for task in (task for status in ALLOCATED_STATUS for task in sub_job.of_status(status).values()):
            if task.node_name:
                names = self.hyper_nodes.keys() if held is None else held
                held = {name for name in names if task.node_name in self.real_nodes.get(name, ())}
        return min(held, key=lambda name: (self.hyper_nodes[name].tier, name)) if held else ""


def number_tiers(job: JobInfo, tier_names: Mapping[str, int]) -> None:
    """Replace known tier names by tiers."""
    units: list[JobInfo | SubJobInfo] = [job, *job.sub_jobs.values()]
    for unit in units:
        demand = unit.network_topology
        if demand is not None and demand.highest_tier is None and demand.highest_tier_name in tier_names:
            tier = tier_names[demand.highest_tier_name]
            unit.network_topology = replace(demand, highest_tier=tier, highest_tier_name="")


def harden(job: JobInfo, top: int) -> None:
    """Turn soft constraints into hard ones: the job's of the root's tier, those of sub-jobs of the job's tier, if it
    has one.
    """
    if job.is_soft:
        job.network_topology = NetworkTopology("hard", top)
    allowed = None if job.network_topology is None else job.network_topology.highest_tier
    for sub_job in job.sub_jobs.values():
        sub_job.convert_to_hard(top if allowed is None else allowed)
