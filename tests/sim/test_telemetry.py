"""Made-up telemetry is plausible, and depends on names, time and seed only."""

from msgspec.structs import replace

from gpuconsole.model.clock import MINUTE
from gpuconsole.model.cluster import Node, Pod, PodPhase
from gpuconsole.model.events import Applied
from gpuconsole.model.gpus.mig import MigInstance
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.model.state import ClusterState
from gpuconsole.model.telemetry import GpuMetric, NodeTelemetry, is_idle
from gpuconsole.sim.telemetry import PERIOD, gpu_usage_pattern, simulate_metrics

START = 1_760_000_000_000_000
LABELS = {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}
NODE = Node(name="a", labels=LABELS, allocatable={"nvidia.com/gpu": 8})


def pod(name: str, *gpus: int, kind: str = "Job", node: str = "a", slices: tuple[MigInstance, ...] = ()) -> Pod:
    return Pod(
        name=name,
        job=f"{kind}/default/{name}",
        node=node,
        gpus=gpus,
        slices=slices,
        phase=PodPhase.RUNNING,
        bound=START,
        started=START,
    )


def snapshot(*things: Node | Pod, at: int = START + 60 * MINUTE) -> Snapshot:
    state = ClusterState(at)
    for thing in things:
        state.apply(Applied(at, thing))
    return state.freeze()


def told(*things: Node | Pod, at: int = START + 60 * MINUTE, seed: int = 1) -> NodeTelemetry:
    (found,) = simulate_metrics(snapshot(*things, at=at), seed)
    return found


def named(idle: bool) -> str:
    """A job that uses its GPUs like this."""
    names = (f"job-{number}" for number in range(1000))
    return next(
        name
        for name in names
        if (gpu_usage_pattern(pod(name), 1).idle if idle else gpu_usage_pattern(pod(name), 1).busy > 0.5)
    )


def test_the_same_moment_tells_the_same_and_another_seed_or_time_something_else() -> None:
    things = NODE, pod("train", 0, 1, 2, 3)
    assert told(*things) == told(*things)
    assert told(*things) != told(*things, seed=2)
    assert told(*things) != told(*things, at=START + 60 * MINUTE + PERIOD)


def test_each_node_tells_the_same_whoever_else_is_there() -> None:
    other = replace(NODE, name="b")
    alone = told(NODE, pod("train", 0))
    both = list(simulate_metrics(snapshot(other, NODE, pod("train", 0), pod("more", 0, node="b")), 1))
    assert alone in both


def test_who_works_uses_more_than_nobody() -> None:
    found = told(NODE, pod(named(idle=False), 0, 1))
    busy, unused = found.value(0, GpuMetric.UTILISATION), found.value(7, GpuMetric.UTILISATION)
    assert busy is not None
    assert busy > 40
    assert unused == 0
    for measured in (GpuMetric.SM, GpuMetric.POWER, GpuMetric.TEMPERATURE, GpuMetric.MEMORY_USED):
        assert (found.value(0, measured) or 0) > (found.value(7, measured) or 0)
    for position in range(8):
        used, free = (found.value(position, one) or 0 for one in (GpuMetric.MEMORY_USED, GpuMetric.MEMORY_FREE))
        assert used + free == 81_920
    assert found.devices[0].pod == f"default/{named(idle=False)}"
    assert found.devices[7].pod == ""


def test_who_holds_a_gpu_for_nothing_is_idle_from_the_start() -> None:
    found = told(NODE, pod(named(idle=True), 3))
    assert is_idle(found, 3)
    assert found.idle_since(3) == START
    assert found.idle_since(0) is None


def test_programs_load_their_data_first() -> None:
    name = named(idle=False)
    early, later = (told(NODE, pod(name, 0), at=START + minutes * MINUTE) for minutes in (1, 10))
    assert (early.value(0, GpuMetric.UTILISATION) or 0) < (later.value(0, GpuMetric.UTILISATION) or 0) / 3


def test_mig_instances_have_no_utilisation_of_their_own() -> None:
    mig = Node(name="a", labels=LABELS, allocatable={"nvidia.com/mig-1g.10gb": 7})
    found = told(mig, pod(named(idle=False), slices=(MigInstance(0, "1g.10gb", 2),)))
    (device,) = found.devices
    assert (device.gpu, device.instance, device.profile) == (0, 3, "1g.10gb")
    assert found.value(0, GpuMetric.UTILISATION) is None
    assert (found.value(0, GpuMetric.ACTIVE) or 0) > 0.3
    assert found.value(0, GpuMetric.POWER) is None


def test_a_node_that_is_down_tells_nothing() -> None:
    assert list(simulate_metrics(snapshot(replace(NODE, ready=False)), 1)) == []


def test_a_few_of_many_gpus_are_faulty() -> None:
    nodes = [replace(NODE, name=f"n{number}") for number in range(1000)]
    codes = [value for one in simulate_metrics(snapshot(*nodes), 1) for value in one.columns[GpuMetric.XID] if value]
    assert 1 <= len(codes) <= 20
