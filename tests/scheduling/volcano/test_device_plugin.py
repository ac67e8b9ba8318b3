"""GPUs that pods share by memory or by part, and pods that never share one with their like."""

from collections.abc import Mapping

import pytest
from msgspec.structs import replace

from gpuconsole.model.cluster import Node, Pod
from gpuconsole.model.pod_template import Container, PodTemplate
from gpuconsole.model.resources import CPU, PODS
from gpuconsole.scheduling.volcano.api.task import TaskInfo
from gpuconsole.scheduling.volcano.config import VolcanoArguments, VolcanoConfiguration, VolcanoPluginOption
from gpuconsole.scheduling.volcano.plugins.deviceshare import (
    Card,
    CardRequest,
    CardShare,
    assigned_shares,
    choose_cards,
    gpu_indices,
    parse_exclusive_rules,
    parse_mig_config,
    plain_cards,
    vgpu_cards,
    vgpu_requests,
)
from gpuconsole.scheduling.volcano.scheduler_conf import PLUGINS
from gpuconsole.scheduling.volcano.session import VolcanoSession
from tests.support.volcano_clusters import cluster, job, pod, session

MEMORY, NUMBER = "volcano.sh/gpu-memory", "volcano.sh/gpu-number"
VNUMBER, VMEMORY, VCORES = "volcano.sh/vgpu-number", "volcano.sh/vgpu-memory", "volcano.sh/vgpu-cores"
PERCENTAGE = "volcano.sh/vgpu-memory-percentage"
VIRTUAL: dict[str, object] = {"deviceshare.VGPUEnable": True}


def wanting(name: str, *limits: Mapping[str, int], **facts: object) -> Pod:
    containers = tuple(Container(f"c{number}", limits=one) for number, one in enumerate(limits))
    return pod(name, template=PodTemplate(containers=containers), **facts)  # type: ignore[arg-type]


def sharing(name: str, *, cards: int = 2, memory: int = 32, unhealthy: str = "") -> Node:
    amounts = {CPU: 1000, PODS: 10, NUMBER: cards, MEMORY: memory}
    marks = {"volcano.sh/gpu-unhealthy-ids": unhealthy} if unhealthy else {}
    return Node(name=name, annotations=marks, capacity=amounts, allocatable=amounts)


def virtual(name: str = "n", cards: int = 2) -> Node:
    amounts = {CPU: 1000, PODS: 10, VNUMBER: 10 * cards, VMEMORY: 1000 * cards, VCORES: 100 * cards}
    register = "".join(f"GPU-{index},10,1000,NVIDIA-A100,true,hami-core:" for index in range(cards))
    return Node(
        name=name, annotations={"volcano.sh/node-vgpu-register": register}, capacity=amounts, allocatable=amounts
    )


def opened(nodes: list[Node], *pods: Pod, arguments: Mapping[str, object]) -> VolcanoSession:
    return session("deviceshare", nodes, [job([TaskInfo(one) for one in pods])], arguments=arguments)


def refusals(on: VolcanoSession, one: Pod) -> dict[str, list[str]]:
    errors = {name: on.predicate(TaskInfo(one), info) for name, info in on.nodes.items()}
    return {name: error.reasons for name, error in errors.items() if error is not None}


def test_cards_share_the_memory_of_a_node() -> None:
    on = opened(
        [sharing("n"), sharing("broken", unhealthy="0,x")],
        wanting("p", {MEMORY: 10}, on="n", annotations={"volcano.sh/gpu-index": "0"}),
        wanting("q", {MEMORY: 10}, on="n"),
        arguments={"deviceshare.GPUSharingEnable": True},
    )
    # Each card has 16: p is on the first, so q is on the second.
    assert refusals(on, wanting("r", {MEMORY: 4}, {MEMORY: 2})) == {}
    assert refusals(on, wanting("r", {MEMORY: 7})) == {"n": ["GpuShare no enough gpu memory on node n"]}
    assert refusals(on, wanting("r", {MEMORY: 17})).keys() == {"n", "broken"}
    assert [card.index for card in plain_cards(sharing("broken", unhealthy="0,x"))] == [1]


def test_whole_cards_are_given_by_number() -> None:
    on = opened(
        [sharing("n", cards=3)], wanting("p", {NUMBER: 1}, on="n"), arguments={"deviceshare.GPUNumberEnable": True}
    )
    assert refusals(on, wanting("q", {NUMBER: 2})) == {}
    assert refusals(on, wanting("q", {NUMBER: 3})) == {"n": ["GpuNumber no enough gpu number on node n"]}


@pytest.mark.parametrize(("text", "wanted"), [("0,2", (0, 2)), ("", ()), ("0,x", ()), ("-1", ())])
def test_an_annotation_names_the_cards_that_a_pod_was_given(text: str, wanted: tuple[int, ...]) -> None:
    assert gpu_indices(pod("p", annotations={"volcano.sh/gpu-index": text})) == wanted


def test_a_register_lists_the_cards_of_a_node() -> None:
    found = [(card.index, card.uuid, card.memory, card.max_pods, card.kind) for card in vgpu_cards(virtual())]
    assert found == [(0, "GPU-0", 1000, 10, "NVIDIA-A100"), (1, "GPU-1", 1000, 10, "NVIDIA-A100")]
    bare = Node(name="n", annotations=virtual().annotations)
    broken = Node(
        name="n", annotations={"volcano.sh/node-vgpu-register": "GPU-0,10:"}, allocatable=virtual().allocatable
    )
    assert (vgpu_cards(bare), vgpu_cards(broken)) == ([], [])


WISHES: dict[str, tuple[Mapping[str, int], list[CardRequest]]] = {
    "cards without a word about memory": ({VNUMBER: 2}, [CardRequest(2, 0, 100)]),
    "cards, memory and cores": ({VNUMBER: 2, VMEMORY: 500, VCORES: 30}, [CardRequest(2, 500, None, 30)]),
    "memory alone": ({VMEMORY: 500}, [CardRequest(1, 500)]),
    "a part of the memory": ({VNUMBER: 1, PERCENTAGE: 40, VMEMORY: 500}, [CardRequest(1, 500, 40)]),
    "nothing": ({CPU: 1}, []),
}


@pytest.mark.parametrize("name", WISHES)
def test_a_container_wishes_for_cards(name: str) -> None:
    limits, wanted = WISHES[name]
    assert vgpu_requests(wanting("p", limits)) == wanted


def holding(*used: tuple[int, int, int]) -> list[Card]:
    """Two cards of 1000; each of `used` is a pod: its card, its memory, its cores."""
    cards = vgpu_cards(virtual())
    for number, (index, memory, cores) in enumerate(used):
        cards[index].pods[f"default/h{number}/0"] = (pod(f"h{number}"), CardShare(index, memory, cores))
    return cards


CHOSEN: dict[str, tuple[list[Card], Mapping[str, int], str, list[CardShare] | None]] = {
    "the last card": (holding(), {VMEMORY: 100}, "", [CardShare(1, 100)]),
    "the fullest": (holding((0, 300, 0)), {VMEMORY: 100}, "binpack", [CardShare(0, 100)]),
    "the emptiest": (holding((1, 300, 0)), {VMEMORY: 100}, "spread", [CardShare(0, 100)]),
    "two cards": (holding(), {VNUMBER: 2, PERCENTAGE: 50}, "binpack", [CardShare(0, 500), CardShare(1, 500)]),
    "three are too many": (holding(), {VNUMBER: 3}, "", None),
    "too little memory": (holding((0, 600, 0), (1, 501, 0)), {VMEMORY: 500}, "", None),
    "too few cores": (holding((0, 0, 60), (1, 0, 90)), {VMEMORY: 1, VCORES: 40}, "", [CardShare(0, 1, 40)]),
    "all cores are a card alone": (holding((1, 1, 0)), {VMEMORY: 1, VCORES: 100}, "", [CardShare(0, 1, 100)]),
    "a card without cores left": (holding((1, 1, 100)), {VMEMORY: 1}, "", [CardShare(0, 1)]),
}


@pytest.mark.parametrize("name", CHOSEN)
def test_cards_are_chosen_by_policy(name: str) -> None:
    cards, limits, policy, wanted = CHOSEN[name]
    found = choose_cards(wanting("p", limits), cards, policy)
    assert (None if found is None else found[0]) == wanted


def test_a_pod_may_choose_the_type_of_its_cards() -> None:
    use, avoid = "nvidia.com/use-gputype", "nvidia.com/nouse-gputype"
    fits = {
        (key, kind): choose_cards(wanting("p", {VMEMORY: 1}, annotations={key: kind}), holding(), "") is not None
        for key in (use, avoid)
        for kind in ("a100", "H100,A100", "h100")
    }
    assert [pair for pair, fitting in fits.items() if fitting] == [(use, "a100"), (use, "H100,A100"), (avoid, "h100")]


def test_pods_of_one_gang_can_want_cards_of_their_own() -> None:
    apart = {"volcano.sh/vgpu-podgroup-policy": "spread"}
    cards = vgpu_cards(virtual())
    cards[1].pods["default/h/0"] = (pod("h"), CardShare(1, 1))
    first = choose_cards(wanting("p", {VMEMORY: 1}, annotations=apart), cards, "binpack")
    assert first is not None
    assert first[0] == [CardShare(0, 1)]


def test_the_annotation_says_what_a_pod_was_given() -> None:
    text = "GPU-1,NVIDIA,300,20:;GPU-9,NVIDIA,1,1:GPU-0,NVIDIA,x,1:"
    one = pod("p", annotations={"volcano.sh/vgpu-ids-new": text})
    assert assigned_shares(one, vgpu_cards(virtual())) == [CardShare(1, 300, 20)]


def test_pods_that_are_there_hold_their_cards() -> None:
    on = opened(
        [virtual()],
        wanting("p", {VMEMORY: 900}, on="n", bound=1),
        wanting("q", {VMEMORY: 900}, on="n", bound=2),
        arguments=VIRTUAL,
    )
    assert refusals(on, wanting("r", {VMEMORY: 100})) == {}
    assert refusals(on, wanting("r", {VMEMORY: 101})) == {"n": ["hami-vgpuDeviceSharing error"]}
    assert refusals(on, wanting("r", {VMEMORY: 1}, annotations={"volcano.sh/vgpu-mode": "mig"})).keys() == {"n"}


def test_a_node_is_better_the_fuller_the_card_becomes() -> None:
    arguments = {**VIRTUAL, "deviceshare.SchedulePolicy": "binpack", "deviceshare.ScheduleWeight": 2}
    on = opened([virtual("a"), virtual("b")], wanting("p", {VMEMORY: 500}, on="b"), arguments=arguments)
    one = TaskInfo(wanting("q", {VMEMORY: 250}))
    assert on.node_scores(one, on.node_list) == {"a": 50, "b": 150}


def test_a_task_that_is_placed_takes_its_cards_until_it_is_taken_back() -> None:
    on = opened([virtual(cards=1)], arguments=VIRTUAL)
    one, other = TaskInfo(wanting("p", {VMEMORY: 600})), wanting("q", {VMEMORY: 600})
    one.node_name = "n"
    (handler,) = on.functions.handlers
    assert handler.allocate is not None
    assert handler.deallocate is not None
    handler.allocate(one)
    assert refusals(on, other).keys() == {"n"}
    handler.deallocate(one)
    assert refusals(on, other) == {}


def test_pods_that_match_a_rule_never_share_a_card_with_their_like() -> None:
    rules = [{"app": "train", "team": "ml"}, {"app": "serve"}, {}, "x", {"n": 1}]
    assert parse_exclusive_rules(rules) == [{"app": "train", "team": "ml"}, {"app": "serve"}]
    train = {"app": "train", "team": "ml"}
    on = opened(
        [virtual(cards=1)],
        wanting("p", {VMEMORY: 1}, on="n", labels=train),
        arguments={**VIRTUAL, "deviceshare.GPUExclusiveRules": rules},
    )
    fitting = [
        labels
        for labels in (train, {"app": "train"}, {"app": "serve"}, {})
        if not refusals(on, wanting("q", {VMEMORY: 1}, labels=labels))
    ]
    assert fitting == [{"app": "train"}, {"app": "serve"}, {}]


DEVICES = """
nvidia:
  knownMigGeometries:
  - models: [A100-SXM4-80GB, A100-PCIE-80GB]
    allowedGeometries:
    - group: group1
      geometries: [{name: 1g.10gb, memory: 10240, count: 7}]
    - group: group2
      geometries: [{name: 2g.20gb, memory: 20480, count: 3}, {name: 1g.10gb, memory: 10240, count: 1}]
    - group: group3
      geometries: [{name: 3g.40gb, memory: 40960, count: 2}]
"""


def divided(*used: tuple[str, int]) -> list[Card]:
    """A card in mode mig; each of `used` is the instance of a pod."""
    node = virtual(cards=1)
    register = "GPU-0,10,81920,NVIDIA-NVIDIA A100-SXM4-80GB,true,mig:"
    node = replace(node, annotations={"volcano.sh/node-vgpu-register": register})
    cards = vgpu_cards(node, parse_mig_config(DEVICES))
    for number, instance in enumerate(used):
        group = next(one for one in cards[0].groups if one.name == instance[0])
        size = group.size_at(instance[1])
        assert size is not None
        cards[0].pods[f"default/h{number}/0"] = (pod(f"h{number}"), CardShare(0, size.memory, 0, instance))
    return cards


INSTANCES: dict[str, tuple[list[Card], int, CardShare | None]] = {
    "the smallest of the first group that is large enough": (divided(), 8000, CardShare(0, 10240, 0, ("group1", 0))),
    "a group with larger ones": (divided(), 15000, CardShare(0, 20480, 0, ("group2", 0))),
    "the first one free of the group in use": (
        divided(("group1", 0), ("group1", 2)),
        8000,
        CardShare(0, 10240, 0, ("group1", 1)),
    ),
    "nothing of another group while one is in use": (divided(("group1", 0)), 15000, None),
    "nothing of a size that nobody has while the group is in use": (
        divided(*(("group2", at) for at in range(3))),
        8000,
        None,
    ),
    "a larger one where no small one is in use": (divided(("group2", 0)), 8000, CardShare(0, 20480, 0, ("group2", 1))),
    "nothing as large as that": (divided(), 50000, None),
}


@pytest.mark.parametrize("name", INSTANCES)
def test_a_card_is_divided_into_instances_that_go_together(name: str) -> None:
    cards, memory, wanted = INSTANCES[name]
    found = choose_cards(wanting("p", {VNUMBER: 1, VMEMORY: memory}), cards, "")
    assert (None if found is None else found[0]) == (None if wanted is None else [wanted])


def test_an_annotation_names_the_instance_of_a_pod() -> None:
    given = wanting("p", {VMEMORY: 1}, annotations={"volcano.sh/vgpu-ids-new": "GPU-0[group2-3],NVIDIA,8000,0:"})
    assert assigned_shares(given, divided()) == [CardShare(0, 10240, 0, ("group2", 3))]


def test_a_model_of_which_nobody_says_how_it_is_divided_is_shared_in_software() -> None:
    node = replace(virtual(), annotations={"volcano.sh/node-vgpu-register": "GPU-0,10,1000,NVIDIA-T4,true,mig:"})
    assert [card.groups for card in vgpu_cards(node, parse_mig_config(DEVICES))] == [()]


def test_groups_are_read_from_the_configmap_that_volcano_looks_for() -> None:
    inner = DEVICES.replace("\n", "\n    ")
    assert parse_mig_config(f"kind: ConfigMap\ndata:\n  device-config.yaml: |\n    {inner}") == parse_mig_config(
        DEVICES
    )
    assert parse_mig_config("nvidia: {}") == ()
    with pytest.raises(ValueError, match="knownMigGeometries has models"):
        parse_mig_config("nvidia: {knownMigGeometries: [{models: [A100]}]}")


def test_pods_that_want_another_mode_than_a_node_has_go_elsewhere() -> None:
    register = {"volcano.sh/node-vgpu-register": "GPU-0,10,1000,NVIDIA-A100-SXM4-80GB,true,mig:"}
    node, one = replace(virtual(cards=1), annotations=register), job([TaskInfo(wanting("w", {VMEMORY: 1}))])
    made = cluster([node], [one])
    made.mig_models = parse_mig_config(DEVICES.replace("10240", "512"))
    option = VolcanoPluginOption(name="deviceshare", arguments=VolcanoArguments(VIRTUAL))
    on = VolcanoSession(VolcanoConfiguration(tiers=((option,),)), made, plugins=PLUGINS)
    modes = {
        mode: refusals(on, wanting("p", {VMEMORY: 400}, annotations={"volcano.sh/vgpu-mode": mode} if mode else {}))
        for mode in ("", "mig", "hami-core")
    }
    assert modes == {"": {}, "mig": {}, "hami-core": {"n": ["hami-vgpuDeviceSharing error"]}}
