"""KAI's SchedulingShards: each is a scheduler of its own, for what has the value of its label."""

from typing import Any

import pytest

from gpuconsole.model.clock import MINUTE
from gpuconsole.model.commands import Delete, Submit
from gpuconsole.model.kai import SchedulingShard, ShardSetting
from gpuconsole.model.manifests import decode_objects
from gpuconsole.model.pod_template import Container, PodTemplate
from gpuconsole.scheduling.kai.config import SchedulerFlags
from gpuconsole.scheduling.kai.store import configuration_of, flags_of, handles
from gpuconsole.sim.engine import Simulation
from gpuconsole.sim.scenario import build_simulation, load_scenario

POOL, QUEUE, GPU = "kai.scheduler/node-pool", "kai.scheduler/queue", "nvidia.com/gpu"
Manifest = dict[str, Any]
BOUNDLESS = {name: {"quota": -1, "limit": -1, "overQuotaWeight": 1} for name in ("gpu", "cpu", "memory")}


def meta(name: str, pool: str, **labels: str) -> Manifest:
    return {"name": name, "labels": {**({POOL: pool} if pool else {}), **labels}}


def node(name: str, pool: str = "", gpus: int = 2) -> Manifest:
    offer = {"cpu": "64", "memory": "256Gi", "pods": "100", GPU: str(gpus)}
    return {"apiVersion": "v1", "kind": "Node", "metadata": meta(name, pool), "status": {"allocatable": offer}}


def queue(name: str, pool: str = "") -> Manifest:
    spec = {"resources": BOUNDLESS}
    return {"apiVersion": "scheduling.run.ai/v2", "kind": "Queue", "metadata": meta(name, pool), "spec": spec}


def shard(name: str, pool: str = "", **spec: Any) -> Manifest:
    value = {"partitionLabelValue": pool} if pool else {}
    head = {"apiVersion": "kai.scheduler/v1", "kind": "SchedulingShard", "metadata": {"name": name}}
    return {**head, "spec": {**value, **spec}}


def pod(name: str, of: str, pool: str = "", gpus: int = 1) -> Manifest:
    container = {"name": "main", "image": "x", "resources": {"limits": {GPU: str(gpus)}}}
    spec = {"schedulerName": "kai-scheduler", "containers": [container]}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {**meta(name, pool, **{QUEUE: of}), "namespace": "n"},
        "spec": spec,
    }


def played(*objects: Manifest, minutes: int = 2) -> Simulation:
    engine = {"admission": "none", "placement": {"engine": "KAI"}}
    simulation = build_simulation(load_scenario([{"engine": engine, "objects": list(objects)}]))
    simulation.advance(simulation.now + minutes * MINUTE)
    return simulation


def places(simulation: Simulation) -> dict[str, str]:
    return {pod.name: pod.node for pod in simulation.snapshot().pods.values()}


TWO = (node("a1", "a"), node("b1", "b"), node("none"), queue("qa", "a"), queue("qb", "b"), queue("q"))


def test_each_shard_places_its_own_pods_on_its_own_nodes() -> None:
    shards = shard("one", "a"), shard("two", "b"), shard("default")
    simulation = played(*TWO, *shards, pod("x", "qa", "a"), pod("y", "qb", "b"), pod("z", "q"))
    assert places(simulation) == {"x": "a1", "y": "b1", "z": "none"}


def test_without_shards_one_scheduler_sees_everything() -> None:
    simulation = played(node("a1", "a"), queue("q"), pod("x", "q"))
    assert places(simulation) == {"x": "a1"}


def test_a_shard_gets_nothing_of_another_ones_nodes() -> None:
    shards = shard("one", "a"), shard("default")
    simulation = played(*TWO, *shards, *(pod(f"x{n}", "qa", "a") for n in range(3)))
    assert sorted(places(simulation).values()) == ["", "a1", "a1"]


def test_a_queue_of_another_shard_does_not_exist_for_a_pod() -> None:
    simulation = played(*TWO, shard("one", "a"), shard("two", "b"), pod("x", "qb", "a"))
    (found,) = simulation.snapshot().pods.values()
    assert (found.node, "Queue 'qb' does not exist" in found.message) == ("", True)


def test_a_pod_of_no_shard_is_told_that_no_scheduler_looks_at_it() -> None:
    simulation = played(*TWO, shard("one", "a"), pod("x", "qb", "b"))
    (found,) = simulation.snapshot().pods.values()
    said = "no SchedulingShard has the partitionLabelValue 'b': no scheduler looks at the pod group"
    assert (found.node, found.message) == ("", said)


def test_what_runs_on_a_node_counts_there_whatever_shard_it_is_of() -> None:
    other = pod("y", "qb", "b", gpus=2)
    other["spec"]["nodeName"] = "a1"
    other["status"] = {"phase": "Running"}
    simulation = played(*TWO, shard("one", "a"), shard("two", "b"), other, pod("x", "qa", "a"))
    assert places(simulation) == {"y": "a1", "x": ""}


def test_the_pods_of_a_job_are_of_the_shard_and_the_queue_that_the_job_names() -> None:
    template = {"spec": {**pod("x", "")["spec"], "restartPolicy": "Never"}}
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {**meta("train", "a", **{QUEUE: "qa"}), "namespace": "n"},
        "spec": {"template": template},
    }
    simulation = played(*TWO, shard("one", "a"), shard("default"), job)
    assert list(places(simulation).values()) == ["a1"]


def test_a_shard_spreads_where_another_one_packs() -> None:
    nodes = [node(f"{pool}{number}", pool, 4) for pool in "ab" for number in range(2)]
    strategies = {"a": "binpack", "b": "spread"}
    shards = [shard(pool, pool, placementStrategy={"gpu": how, "cpu": how}) for pool, how in strategies.items()]
    pods = [pod(f"{pool}-{number}", f"q{pool}", pool) for pool in "ab" for number in range(2)]
    simulation = played(*nodes, queue("qa", "a"), queue("qb", "b"), *shards, *pods)
    used = {pool: len({n for name, n in places(simulation).items() if name.startswith(pool)}) for pool in "ab"}
    assert used == {"a": 1, "b": 2}


def test_a_shard_that_comes_later_places_what_waited_and_one_that_goes_leaves_it() -> None:
    simulation = played(*TWO, shard("one", "a"), pod("y", "qb", "b"))
    made, _ = decode_objects([shard("two", "b")])
    simulation.submit(Submit(made))
    simulation.advance(simulation.now + MINUTE)
    assert places(simulation) == {"y": "b1"}
    simulation.submit(Delete("scheduling_shards", "two"))
    more, _ = decode_objects([pod("z", "qb", "b")])
    simulation.submit(Submit(more))
    simulation.advance(simulation.now + MINUTE)
    assert places(simulation) == {"y": "b1", "z": ""}


def test_a_saved_simulation_goes_on_with_its_shards() -> None:
    simulation = played(*TWO, shard("one", "a"), shard("two", "b"), pod("x", "qa", "a"))
    again = Simulation.load(simulation.save())
    more, _ = decode_objects([pod("y", "qb", "b"), pod("z", "qb", "a")])
    for one in (simulation, again, simulation.fork()):
        one.submit(Submit(more))
        one.advance(one.now + MINUTE)
        assert places(one) == {"x": "a1", "y": "b1", "z": ""}


def test_the_largest_gang_is_that_of_the_shard_of_its_label() -> None:
    simulation = played(*TWO, shard("one", "a"), shard("default"))
    needs = (Container(requests={GPU: 1000 // 1000}),)
    rooms = {
        value: simulation.placement.largest_gang(PodTemplate(containers=needs, labels={POOL: value} if value else {}))
        for value in ("a", "b", "")
    }
    assert rooms == {"a": 2, "b": 0, "": 2}


@pytest.mark.parametrize(
    ("partition", "labels", "seen"),
    [("a", {POOL: "a"}, True), ("a", {POOL: "b"}, False), ("a", {}, False), ("", {}, True), ("", {POOL: ""}, False)],
)
def test_a_shard_sees_its_value_and_the_one_without_what_has_no_label(
    partition: str, labels: dict[str, str], seen: bool
) -> None:
    assert handles(partition, labels) == seen


def plugins(**spec: Any) -> list[str]:
    (tier,) = configuration_of(SchedulingShard(name="s", **spec)).tiers
    return [option.name for option in tier.plugins]


def test_the_configuration_is_the_one_that_the_operator_writes() -> None:
    packing = plugins()
    assert packing[:3] == ["predicates", "proportion", "priority"]
    assert packing[-4:] == ["snapshot", "gpupack", "nodeplacement", "gpusharingorder"]
    assert plugins(gpu_strategy="spread")[-3:] == ["snapshot", "gpuspread", "nodeplacement"]
    changed = plugins(plugin_settings={"elastic": ShardSetting(enabled=False), "topology": ShardSetting(priority=2000)})
    assert (changed[0], "elastic" in changed) == ("topology", False)
    actions = configuration_of(SchedulingShard(name="s", cpu_strategy="spread")).actions
    assert actions == ("allocate", "reclaim", "preempt", "stalegangeviction")
    turned = {"preempt": ShardSetting(priority=450), "reclaim": ShardSetting(enabled=False)}
    swapped = configuration_of(SchedulingShard(name="s", action_settings=turned)).actions
    assert swapped == ("allocate", "preempt", "consolidation", "stalegangeviction")


def test_arguments_of_plugins_come_from_the_fields_of_the_shard_unless_it_sets_them_itself() -> None:
    own = {"minruntime": ShardSetting(arguments={"defaultPreemptMinRuntime": "1h"})}
    for settings, expected in (({}, {"defaultPreemptMinRuntime": "5m"}), (own, {"defaultPreemptMinRuntime": "1h"})):
        found = SchedulingShard(name="s", k_value=2.5, preempt_min_runtime="5m", plugin_settings=settings)
        arguments = {option.name: dict(option.arguments) for option in configuration_of(found).tiers[0].plugins}
        assert arguments["minruntime"] == expected
        assert arguments["proportion"] == {"kValue": "2.5"}
        assert arguments["nodeplacement"] == {"gpu": "binpack", "cpu": "binpack"}


def test_flags_that_decide_something_are_taken_and_bad_ones_left_out() -> None:
    args = {"max-consolidation-preemptees": "4", "use-scheduling-signatures": "maybe", "v": "5"}
    found = flags_of(SchedulingShard(name="s", partition="a", args=args), SchedulerFlags())
    assert found == SchedulerFlags(node_pool="a", max_consolidation_victims=4)
    forever = SchedulingShard(name="s", args={"default-staleness-grace-period": "-1s"})
    assert flags_of(forever, SchedulerFlags()).staleness_grace < 0
