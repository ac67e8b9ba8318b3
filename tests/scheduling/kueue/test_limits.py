"""LimitRanges, limits and RuntimeClasses: what they fill in, what they forbid."""

from typing import NamedTuple

import pytest
from msgspec.structs import replace

from gpuconsole.model.cluster import LimitRange, LimitRangeItem, RuntimeClass
from gpuconsole.model.pod_template import Container, PodResources, PodSet, PodTemplate
from tests.support.kueue_cluster import GPU, World, group, queue, workload


class Case(NamedTuple):
    container: Container
    ranges: tuple[LimitRange, ...]
    want: str
    """The usage in CPU and memory, or the message."""


def limits(name: str, **facts: object) -> LimitRange:
    return LimitRange(namespace="team", name=name, items=(LimitRangeItem(**facts),))  # type: ignore[arg-type]


def asks(**requests: int) -> Container:
    return Container(requests=requests)


CONTAINER = "spec.podSets[0].template.spec.containers[0]"
UNSATISFIED = "resources didn't satisfy LimitRange constraints: "

CASES: dict[str, Case] = {
    "requests stand as they are": Case(asks(cpu=500), (), "cpu 500"),
    "a limit stands for a missing request": Case(Container(limits={"cpu": 700}), (), "cpu 700"),
    "a request above its limit is refused": Case(
        Container(requests={"cpu": 900, "memory": 2}, limits={"cpu": 700, "memory": 1}),
        (),
        f'resources validation failed: {CONTAINER}: Invalid value: ["cpu","memory"]: '
        "requests must not exceed its limits",
    ),
    "a default request fills the gap": Case(
        asks(memory=5), (limits("l", default_request={"cpu": 250, "memory": 9}),), "cpu 250, memory 5"
    ),
    "so does a default limit": Case(asks(memory=5), (limits("l", default={"cpu": 300}),), "cpu 300, memory 5"),
    "the first default by name counts": Case(
        asks(),
        (limits("b", default_request={"cpu": 2}), limits("a", default_request={"cpu": 1})),
        "cpu 1",
    ),
    "above the maximum": Case(
        asks(cpu=600),
        (limits("l", max={"cpu": 500}),),
        f'{UNSATISFIED}{CONTAINER}: Invalid value: ["cpu"]: requests must not be above the limitRange max',
    ),
    "the lowest maximum counts": Case(
        asks(cpu=600),
        (limits("l", max={"cpu": 1000}), limits("m", max={"cpu": 500})),
        f'{UNSATISFIED}{CONTAINER}: Invalid value: ["cpu"]: requests must not be above the limitRange max',
    ),
    "below the minimum": Case(
        asks(cpu=100),
        (limits("l", min={"cpu": 500}),),
        f'{UNSATISFIED}{CONTAINER}: Invalid value: ["cpu"]: requests must not be below the limitRange min',
    ),
    "the whole pod has limits of its own": Case(
        asks(cpu=600),
        (limits("l", type="Pod", max={"cpu": 500}),),
        f'{UNSATISFIED}spec.podSets[0].template.spec: Invalid value: ["cpu"]: '
        "requests must not be above the limitRange max",
    ),
    "several problems stand in brackets": Case(
        asks(cpu=600, memory=1),
        (limits("l", max={"cpu": 500}, min={"memory": 5}),),
        f'{UNSATISFIED}[{CONTAINER}: Invalid value: ["cpu"]: requests must not be above the limitRange max, '
        f'{CONTAINER}: Invalid value: ["memory"]: requests must not be below the limitRange min]',
    ),
    "limits of another namespace do not matter": Case(
        asks(cpu=600),
        (LimitRange(namespace="other", name="l", items=(LimitRangeItem(max={"cpu": 1}),)),),
        "cpu 600",
    ),
}


def outcome(world: World) -> str:
    admission = world.workloads["w"].admission
    if admission is None:
        return world.message("w")
    return ", ".join(f"{name} {amount}" for name, amount in admission.pod_sets[0].usage.items())


def pod_set(container: Container) -> PodSet:
    return PodSet(template=PodTemplate(containers=(container,)))


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_limits(case: Case) -> None:
    resource_groups = (group({"f": 9000}, "cpu"), group({"g": 9000}, "memory"))
    world = World(*case.ranges, queue("q", groups=resource_groups), flavors=("f", "g"))
    world.run(workload("w", "q", pod_sets=(pod_set(case.container),)))
    assert outcome(world) == case.want


def test_waiting_workloads_follow_when_the_limits_of_their_namespace_change() -> None:
    world = World(limits("l", default_request={GPU: 8}), queue("q", 4)).run(
        workload("w", "q", pod_sets=(pod_set(asks()),))
    )
    assert world.waiting("q") == ["(w)"]
    world.apply(limits("l", default_request={GPU: 2}))
    world.settle()
    assert outcome(world) == f"{GPU} 2"


SANDBOX = RuntimeClass(name="sandbox", overhead={"cpu": 250})
SANDBOXED = PodTemplate(containers=(asks(cpu=500),), runtime_class="sandbox")

TEMPLATES: dict[str, tuple[PodTemplate, tuple[LimitRange, ...], str]] = {
    "a RuntimeClass costs each pod something": (SANDBOXED, (), "cpu 750"),
    "what the pod says of its overhead counts": (replace(SANDBOXED, overhead={"cpu": 100}), (), "cpu 600"),
    "a RuntimeClass that nobody made costs nothing": (replace(SANDBOXED, runtime_class="gone"), (), "cpu 500"),
    "what a pod asks for as a whole replaces what its containers ask for": (
        replace(SANDBOXED, runtime_class="", resources=PodResources({"cpu": 200})),
        (),
        "cpu 200",
    ),
    "but not for devices": (
        PodTemplate(containers=(asks(cpu=500, memory=7),), resources=PodResources({"cpu": 200, "example.com/a": 1})),
        (),
        "cpu 200, memory 7",
    ),
    "limits of the whole stand for its missing requests, overhead comes on top": (
        replace(SANDBOXED, resources=PodResources(limits={"cpu": 300})),
        (),
        "cpu 550",
    ),
    "defaults for pods fill in what a whole leaves open": (
        PodTemplate(containers=(asks(cpu=500),), resources=PodResources({"memory": 5})),
        (limits("l", type="Pod", default_request={"cpu": 100}),),
        "cpu 100, memory 5",
    ),
    "a whole above its own limits is refused": (
        PodTemplate(containers=(asks(cpu=100),), resources=PodResources({"cpu": 300}, {"cpu": 200})),
        (),
        'resources validation failed: spec.podSets[0].template.spec.resources: Invalid value: ["cpu"]: '
        "requests must not exceed its limits",
    ),
}


@pytest.mark.parametrize(("template", "ranges", "want"), TEMPLATES.values(), ids=TEMPLATES)
def test_what_whole_pods_ask_for(template: PodTemplate, ranges: tuple[LimitRange, ...], want: str) -> None:
    resource_groups = (group({"f": 9000}, "cpu"), group({"g": 9000}, "memory"))
    world = World(SANDBOX, *ranges, queue("q", groups=resource_groups), flavors=("f", "g"))
    world.run(workload("w", "q", pod_sets=(PodSet(template=template),)))
    assert outcome(world) == want


def test_waiting_workloads_follow_when_their_runtime_class_costs_something_else() -> None:
    world = World(replace(SANDBOX, overhead={"cpu": 900}), queue("q", groups=(group({"f": 1000}, "cpu"),)))
    world.run(workload("w", "q", pod_sets=(PodSet(template=SANDBOXED),)))
    assert world.waiting("q") == ["(w)"]
    world.apply(SANDBOX)
    world.settle()
    assert outcome(world) == "cpu 750"
