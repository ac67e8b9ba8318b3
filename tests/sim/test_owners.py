"""Whatever comes and goes under whichever engine: no GPU and no slice has two owners unless it is shared."""

from collections import Counter, defaultdict
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpuconsole.model.cluster import Pod
from gpuconsole.model.commands import Delete, Submit
from gpuconsole.model.gpus.mig import MigPlacement
from gpuconsole.model.gpus.mig_reconfiguration import division_of
from gpuconsole.model.gpus.sharing import device, replicas
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.sim.engine import Simulation
from gpuconsole.sim.scenario import build_simulation, load_scenario
from tests.sim.test_sharing import A100, GPU, machine
from tests.support.kube_cluster import template

SMALL, BIG, WHOLE = "nvidia.com/mig-1g.10gb", "nvidia.com/mig-3g.40gb", "nvidia.com/mig-7g.80gb"
SHARING = [
    {"nodeSelector": {"pool": "n1"}, "mig": {"config": "all-balanced"}},
    {"nodeSelector": {"pool": "n2"}, "timeSlicing": {"resources": [{"replicas": 3}]}},
    {"nodeSelector": {"pool": "n3"}, "mig": {"config": "all-enabled", "dynamic": True}},
]
ENGINES: dict[str, dict[str, Any]] = {
    "kube-scheduler": {},
    "Volcano": {"engine": "Volcano"},
    "KAI": {"engine": "KAI"},
}
POD = st.tuples(st.sampled_from([GPU, GPU, SMALL, BIG, WHOLE]), st.integers(1, 3), st.integers(0, 2))
LIVES = st.lists(st.one_of(POD, st.just(None)), min_size=1, max_size=14)


def start(engine: str) -> Simulation:
    nodes = [machine(f"n{number}", product=A100) for number in (1, 2, 3, 4)]
    # Only kube-scheduler's rules know what fits beside the instances that are there.
    sharing = SHARING if engine == "kube-scheduler" else SHARING[:2]
    document = {"engine": {"admission": "none", "placement": ENGINES[engine], "sharing": sharing}, "objects": nodes}
    return build_simulation(load_scenario([document]))


@pytest.mark.parametrize("engine", list(ENGINES))
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(lives=LIVES)
def test_no_gpu_and_no_slice_has_two_owners_unless_it_is_shared(
    engine: str, lives: list[tuple[str, int, int] | None]
) -> None:
    simulation = start(engine)
    for number, life in enumerate(lives):
        if life is None:
            placed = sorted(pod.key for pod in simulation.snapshot().pods.all() if pod.node)
            simulation.submit(Delete("pods", placed[0]) if placed else Submit(()))
        else:
            resource, count, priority = life
            wanted = template(requests={resource: count}, grace_period=0)
            simulation.submit(Submit((Pod(name=f"p{number}", template=wanted, priority=priority),)))
        simulation.advance(simulation.now + 60_000_000)
        check(simulation.snapshot())


def check(snapshot: Snapshot) -> None:
    """Count the owners of every GPU, and lay out all slices of every divided one."""
    owners: Counter[tuple[str, int]] = Counter()
    slices: dict[str, dict[int, list[MigPlacement]]] = defaultdict(lambda: defaultdict(list))
    for pod in snapshot.pods.all():
        if not pod.node or pod.done:
            continue
        node = snapshot.nodes[pod.node]
        assert len(set(pod.gpus)) == pod.template.requests.get(GPU, 0)
        asked = sum(count for name, count in pod.template.requests.items() if name != GPU)
        assert len(pod.slices) == asked
        owners.update((pod.node, device(index, node.gpus, node.labels)) for index in pod.gpus)
        for one in pod.slices:
            slices[pod.node][one.gpu].append(MigPlacement(one.profile, one.start))
    for (name, _), count in owners.items():
        assert count <= replicas(snapshot.nodes[name].labels)
    for name, gpus in slices.items():
        node = snapshot.nodes[name]
        division = division_of(node.allocatable, node.labels, node.annotations)
        assert division is not None
        assert [division.geometry.objection(layout) for layout in gpus.values()] == [""] * len(gpus)
