"""The table of predicates and scores that can be asked for any pod, and that changes nothing."""

from msgspec.structs import replace

from gpuconsole.model.cluster import Node, Pod
from gpuconsole.model.labels import Taint
from gpuconsole.model.pod_template import Container, PodClaim, PodTemplate
from gpuconsole.model.resources import CPU, GPU, MEMORY, PODS
from gpuconsole.scheduling.placement import NodeScore, ScoreTable
from gpuconsole.scheduling.volcano.config import HELM_CONF, VolcanoPolicy
from gpuconsole.scheduling.volcano.engine import VolcanoPlacement

PACKING = HELM_CONF.rstrip() + "\n    arguments: {binpack.resources: nvidia.com/gpu, binpack.weight: 2}\n"
GIB = 1024**3


def machine(name: str, gpus: int = 8, **facts: object) -> Node:
    amounts = {CPU: 8000, MEMORY: 32 * GIB, GPU: gpus, PODS: 20}
    return Node(**{"name": name, "allocatable": amounts, "capacity": amounts, **facts})  # type: ignore[arg-type]


def pod(name: str = "p", gpus: int = 2, on: str = "", **facts: object) -> Pod:
    template = PodTemplate(containers=(Container(requests={CPU: 1000, MEMORY: 4 * GIB, GPU: gpus}),), **facts)  # type: ignore[arg-type]
    return Pod(name=name, template=template, node=on)


def engine(*things: Node | Pod, conf: str = PACKING) -> VolcanoPlacement:
    made = VolcanoPlacement(VolcanoPolicy(conf=conf))
    for thing in things:
        made.apply(thing, 0)
    return made


def table(made: VolcanoPlacement, asked: Pod) -> ScoreTable:
    found = made.scores(asked)
    assert found is not None
    return found


def column(found: ScoreTable, plugin: str) -> dict[str, NodeScore]:
    number = [one.plugin for one in found.plugins].index(plugin)
    return {row.node: row.scores[number] for row in found.rows if row.scores}


def test_each_plugin_scores_each_node_that_fits_and_the_highest_total_is_chosen() -> None:
    made = engine(machine("a"), machine("b"), pod("there", 4, on="b"))
    found = table(made, pod())
    # 100 · weight · (requested + used) / allocatable of cpu, memory and GPUs.
    assert column(found, "binpack") == {"a": NodeScore(33, 33, 3333), "b": NodeScore(83, 83, 8333)}
    assert column(found, "NodeResourcesFit_LeastAllocated") == {
        "a": NodeScore(87, 87, 8700),
        "b": NodeScore(75, 75, 7500),
    }
    assert column(found, "TaintToleration")["a"] == NodeScore(100, 100, 30000)
    assert (found.scheduler, found.chosen, found.ties, found.message) == ("volcano", "b", (), "")
    assert all(row.total == sum(score.weighted for score in row.scores) for row in found.rows)


def test_every_plugin_says_why_it_refuses_a_node() -> None:
    tainted = machine("a", 1, taints=(Taint("gpu"),))
    found = table(engine(tainted, machine("b", unschedulable=True)), pod())
    said = {
        row.node: {one.plugin: text for one, text in zip(found.filters, row.verdicts, strict=True) if text}
        for row in found.rows
    }
    assert said == {
        "a": {
            "NodeResources": "Insufficient nvidia.com/gpu",
            "TaintToleration": "node(s) had untolerated taint {gpu: }",
        },
        "b": {"NodeUnschedulable": "node(s) were unschedulable"},
    }
    assert found.chosen == ""
    assert found.message == ("0/2 nodes are unavailable: 1 Insufficient nvidia.com/gpu, 1 node(s) were unschedulable.")


def test_what_keeps_a_pod_from_every_node_stands_in_each_row() -> None:
    found = table(engine(machine("a")), pod(resource_claims=(PodClaim("gpu", claim="gone"),)))
    text = 'plugin DynamicResources pre-predicates failed resourceclaim.resource.k8s.io "gone" not found'
    number = [one.plugin for one in found.filters].index("DynamicResources")
    assert (found.rows[0].verdicts[number], found.message) == (text, text)


def test_equals_are_named_and_a_pod_that_runs_is_judged_as_if_it_did_not() -> None:
    running = pod("p", 8, on="a")
    found = table(engine(machine("a"), machine("b"), running), running)
    assert (found.chosen, found.ties) == ("a", ("b",))


def test_asking_changes_nothing() -> None:
    things = (machine("a"), machine("b"), pod("there", 4, on="b"), pod("new"))
    asked, other = engine(*things), engine(*things)
    asked.scores(pod("new"))
    asked.scores(pod("unknown"))
    assert asked.dump() == other.dump()
    assert asked.schedule(1) == other.schedule(1)


def test_a_pod_of_a_queue_that_is_not_there_has_no_table() -> None:
    made = engine(machine("a"))
    assert made.scores(replace(pod(), annotations={"scheduling.volcano.sh/queue-name": "gone"})) is None
