"""Counts that are kept between searches for places are those that a first look would give."""

from hypothesis import given, settings
from hypothesis import strategies as st

from gpuconsole.model.cluster import Node
from gpuconsole.model.labels import HOSTNAME, Taint
from gpuconsole.model.pod_template import PodSet, PodTemplate, TopologyRequest
from gpuconsole.model.queues import ResourceFlavor, Topology
from gpuconsole.scheduling.kueue.pod_resources import TopologyUsage
from gpuconsole.scheduling.kueue.topology.demand import TasPodSetRequest
from gpuconsole.scheduling.kueue.topology.domains import build_domains
from gpuconsole.scheduling.kueue.topology.layout import TasGates, TasUsage
from gpuconsole.scheduling.kueue.topology.tas_assignment import find_topology_placements
from tests.support.kueue_cluster import GPU

RACK = "rack"
HOSTS = [f"r{rack}-h{host}" for rack in range(3) for host in range(3)]
NODES = [
    Node(
        name=name,
        labels={RACK: name[:2], HOSTNAME: name},
        allocatable={GPU: 2 + number % 3, "pods": 5},
        taints=(Taint("down", "", "NoSchedule"),) if number == 4 else (),
    )
    for number, name in enumerate(HOSTS)
]
DOMAINS = build_domains(Topology(name="t", levels=(RACK, HOSTNAME)), ResourceFlavor(name="f", topology="t"), NODES)

requests = st.sampled_from(
    (
        TopologyRequest(required=RACK),
        TopologyRequest(preferred=HOSTNAME),
        TopologyRequest(unconstrained=True),
        TopologyRequest(required=RACK, slice_required=HOSTNAME, slice_size=2),
    )
)
demands = st.builds(
    lambda count, gpus, request, rack: TasPodSetRequest(
        PodSet(count=count, template=PodTemplate(node_selector={RACK: rack} if rack else {}), topology=request),
        count,
        {GPU: gpus},
        is_implied=False,
    ),
    st.integers(1, 7),
    st.integers(1, 2),
    requests,
    st.sampled_from(("", "", "r1")),
)
moves = st.builds(
    lambda host, count, gpus, sign: ([TopologyUsage("f", (host,), count, {GPU: gpus})], sign),
    st.sampled_from(HOSTS),
    st.integers(1, 2),
    st.integers(1, 2),
    st.sampled_from((1, 1, -1)),
)
strangers = st.builds(lambda host, gpus: [(host, {GPU: gpus, "pods": 1}, 1)], st.sampled_from(HOSTS), st.integers(1, 2))


@settings(max_examples=60)
@given(st.lists(st.tuples(st.one_of(moves, strangers), st.lists(demands, min_size=1, max_size=3)), max_size=8))
def test_kept_counts_follow_every_change_of_usage(steps: list) -> None:  # type: ignore[type-arg]
    sites = TasUsage({"f": DOMAINS})
    for change, wanted in steps:
        if isinstance(change, tuple):
            sites.add_usage(*change)
        else:
            sites.apply_changes(change)
        for demand in wanted:
            for empty in (False, True):
                kept = find_topology_placements({"f": [demand, demand]}, sites, gates=TasGates(), empty=empty)
                fresh = find_topology_placements({"f": [demand, demand]}, sites.fork(), gates=TasGates(), empty=empty)
                assert kept == fresh


def test_a_trial_on_a_copy_leaves_the_original_as_it_was() -> None:
    sites = TasUsage({"f": DOMAINS})
    demand = TasPodSetRequest(PodSet(count=2, topology=TopologyRequest(required=RACK)), 2, {GPU: 2}, is_implied=False)
    before = find_topology_placements({"f": [demand]}, sites, gates=TasGates(), empty=False)
    trial = sites.copy()
    trial.add_usage([TopologyUsage("f", (host,), 1, {GPU: 2}) for host in HOSTS])
    assert find_topology_placements({"f": [demand]}, trial, gates=TasGates(), empty=False).failed == "main"
    assert find_topology_placements({"f": [demand]}, sites, gates=TasGates(), empty=False) == before
