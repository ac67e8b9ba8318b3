"""KAI as an engine of placement: objects go in, decisions come out, and GPUs have owners by index."""

from collections import Counter, defaultdict
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from gpuconsole.model.clock import HOUR, MINUTE, Time
from gpuconsole.model.cluster import Node, Pod, PodPhase
from gpuconsole.model.events import Bind, EvictPod, PlacementDecision, Unschedulable
from gpuconsole.model.kai import KaiQueue, QueueResource
from gpuconsole.model.objects import Object
from gpuconsole.model.pod_template import Container, PodTemplate
from gpuconsole.scheduling.kai.cluster_info import request_of
from gpuconsole.scheduling.kai.config import KaiPolicy, UsagePolicy
from gpuconsole.scheduling.kai.engine import KaiPlacement

GPU = "nvidia.com/gpu"
FREE = QueueResource(quota=-1, over_quota_weight=1, limit=-1)


def node(name: str, gpus: int) -> Node:
    return Node(
        name=name,
        labels={"nvidia.com/gpu.memory": "80000"},
        allocatable={"cpu": 64_000, "memory": 10**12, GPU: gpus, "pods": 110},
    )


def queue(name: str, quota: float) -> KaiQueue:
    return KaiQueue(name=name, gpu=QueueResource(quota=quota, over_quota_weight=1, limit=-1), cpu=FREE, memory=FREE)


def pod(
    name: str, gpus: int = 1, *, queue: str = "a", gang: str = "", size: int = 0, created: Time = 0, **notes: str
) -> Pod:
    requests = {"cpu": 1000, GPU: gpus} if gpus else {"cpu": 1000}
    return Pod(
        name=name,
        created=created,
        labels={"kai.scheduler/queue": queue},
        annotations={name.replace("_", "-"): text for name, text in notes.items()},
        template=PodTemplate(containers=(Container(requests=requests),)),
        gang=gang,
        gang_size=size,
    )


def engine(things: Sequence[Object], policy: KaiPolicy = KaiPolicy()) -> KaiPlacement:  # noqa: B008
    made = KaiPlacement(policy)
    for thing in things:
        made.apply(thing, 0)
    return made


def binds(decisions: Sequence[PlacementDecision]) -> dict[str, tuple[str, tuple[int, ...]]]:
    return {d.pod: (d.node, d.gpus) for d in decisions if isinstance(d, Bind)}


def test_whole_gpus_are_the_lowest_that_are_free_and_shared_ones_have_several_owners() -> None:
    made = engine(
        [
            node("n1", 4),
            queue("a", 4),
            pod("whole", 2, created=1),
            pod("half-1", 0, created=2, gpu_fraction="0.5"),
            pod("half-2", 0, created=3, gpu_fraction="0.5"),
            pod("half-3", 0, created=4, gpu_fraction="0.5"),
        ]
    )
    assert binds(made.schedule(5)) == {
        "default/whole": ("n1", (0, 1)),
        "default/half-1": ("n1", (2,)),
        "default/half-2": ("n1", (2,)),
        "default/half-3": ("n1", (3,)),
    }
    assert made.free_gpus() == {"n1": ()}
    assert made.gpus_of("default/half-2") == (2,)


def test_gpu_memory_is_a_part_of_the_gpu_of_the_node() -> None:
    made = engine([node("n1", 1), queue("a", 4), *(pod(f"p{n}", 0, created=n, gpu_memory="30000") for n in range(3))])
    assert binds(made.schedule(5)) == {"default/p0": ("n1", (0,)), "default/p1": ("n1", (0,))}


def test_a_pod_without_a_queue_goes_to_the_default_one() -> None:
    nobody = replace(pod("stray"), labels={})
    assert binds(engine([node("n1", 1), nobody]).schedule(1)) == {"default/stray": ("n1", (0,))}


def test_a_pod_of_an_unknown_queue_waits() -> None:
    assert binds(engine([node("n1", 1), pod("lost", queue="nowhere")]).schedule(1)) == {}


def test_victims_are_named_with_the_pod_that_they_go_for() -> None:
    running = [
        replace(pod(f"old-{n}", 2, queue="b", created=n), node="n1", phase=PodPhase.RUNNING, bound=n) for n in (0, 1)
    ]
    made = engine([node("n1", 4), queue("a", 2), queue("b", 2), *running, pod("mine", 2, created=9)])
    (evicted,) = [d for d in made.schedule(10) if isinstance(d, EvictPod)]
    assert (evicted.pod, evicted.by, evicted.node) == ("default/old-1", "default/mine", "n1")
    assert made.schedule(11) == []
    made.delete("pods", "default/old-1", 12)
    assert made.has_pending
    assert binds(made.schedule(12)) == {"default/mine": ("n1", (2, 3))}


def test_a_pod_is_told_once_why_it_waits() -> None:
    made = engine([node("n1", 1), queue("a", 4), pod("big", 2)])
    (said,) = made.schedule(1)
    assert isinstance(said, Unschedulable)
    assert said.message.startswith("Scheduling conditions were not met for pod default/big:\nMaxNodePoolResources: ")
    assert said.story.startswith("PodSchedulingErrors: Resources were not found for pod default/big due to: ")
    made.apply(node("n2", 1), 2)
    assert made.schedule(2) == []


def test_what_it_decided_itself_is_no_reason_for_another_session() -> None:
    made = engine([node("n1", 1), queue("a", 4), pod("job"), pod("waits", created=1)])
    (bind, _) = made.schedule(1)
    assert isinstance(bind, Bind)
    made.apply(replace(pod("job"), node=bind.node, gpus=bind.gpus, bound=1), 1)
    assert not made.has_pending


def test_the_queue_that_used_less_lately_is_served_more() -> None:
    policy = KaiPolicy(usage=UsagePolicy(window=24 * HOUR))
    things: list[Object] = [node("n1", 4), queue("a", 0), queue("b", 0)]
    made = engine([*things, *(pod(f"a-{n}", created=n) for n in range(4))], policy)
    assert len(binds(made.schedule(0))) == 4
    for n in range(4):
        made.delete("pods", f"default/a-{n}", 2 * HOUR)
    for n in range(4):
        made.apply(pod(f"a-{n}-again", created=n), 2 * HOUR)
        made.apply(pod(f"b-{n}", queue="b", created=n), 2 * HOUR)
    placed = Counter(name[8] for name in binds(made.schedule(2 * HOUR)))
    assert placed == {"b": 4}


def test_largest_gang_counts_what_fits_now() -> None:
    made = engine([node("n1", 4), node("n2", 3), queue("a", 4), pod("job", 1)])
    made.schedule(0)
    assert made.largest_gang(pod("gang", 2).template) == 3


POLICY = KaiPolicy(usage=UsagePolicy())
PODS = st.lists(
    st.tuples(st.sampled_from(["a", "b"]), st.sampled_from([0.25, 0.5, 1, 1, 2, 4]), st.integers(1, 3)),
    min_size=1,
    max_size=8,
)


def crew(drawn: Sequence[tuple[str, float, int]]) -> list[Pod]:
    made = []
    for number, (name, gpus, size) in enumerate(drawn):
        for member in range(size):
            one = pod(f"g{number}-{member}", int(gpus), queue=name, gang=f"gang-{number}", size=size, created=number)
            made.append(one if gpus >= 1 else replace(one, annotations={"gpu-fraction": str(gpus)}))
    return made


@given(PODS, st.integers(0, 3))
def test_gpus_are_never_overcommitted_and_gangs_start_whole(drawn: list[tuple[str, float, int]], rounds: int) -> None:
    pods = {one.key: one for one in crew(drawn)}
    made = engine([node("n1", 4), node("n2", 2), queue("a", 3), queue("b", 3), *pods.values()], POLICY)
    for number in range(rounds + 1):
        for decision in made.schedule(number * MINUTE):
            if isinstance(decision, Bind):
                pods[decision.pod] = replace(
                    pods[decision.pod], node=decision.node, gpus=decision.gpus, phase=PodPhase.RUNNING
                )
                made.apply(pods[decision.pod], number * MINUTE)
        load: dict[tuple[str, int], float] = defaultdict(float)
        for one in pods.values():
            for gpu in one.gpus:
                load[one.node, gpu] += float(one.annotations.get("gpu-fraction", 1))
        assert all(share <= 1 for share in load.values())
        placed = Counter(one.gang for one in pods.values() if one.node)
        assert all(
            count == next(p.gang_size for p in pods.values() if p.gang == gang) for gang, count in placed.items()
        )


@given(PODS)
def test_a_fork_runs_like_the_original_and_never_touches_it(drawn: list[tuple[str, float, int]]) -> None:
    made = engine([node("n1", 4), queue("a", 3), queue("b", 3), *crew(drawn)], POLICY)
    twin = made.fork()
    said = twin.schedule(1)
    assert made.free_gpus() == {"n1": (0, 1, 2, 3)}
    assert made.schedule(1) == said
    again = engine([node("n1", 4), queue("a", 3), queue("b", 3), *crew(drawn)], POLICY)
    again.load(made.fork().dump())
    assert again.dump() == made.dump()


def test_a_gang_that_lost_a_pod_is_looked_at_again_when_its_grace_ends() -> None:
    crew_of_two = [replace(pod(f"g-{n}", gang="g", size=2), node="n1", phase=PodPhase.RUNNING, bound=0) for n in (0, 1)]
    made = engine([node("n1", 2), queue("a", 4), *crew_of_two, pod("other", 2)])
    made.delete("pods", "default/g-1", MINUTE)
    made.schedule(MINUTE)
    assert (made.next_timer(), made.next_timer()) == (2 * MINUTE, None)
    assert not made.has_pending
    made.request_pass()
    assert [d.pod for d in made.schedule(2 * MINUTE) if isinstance(d, EvictPod)] == ["default/g-0"]


def test_a_protected_job_is_looked_at_again_when_it_has_run_for_its_minimum() -> None:
    guarded = replace(queue("b", 0), reclaim_min_runtime=10 * MINUTE)
    running = replace(pod("theirs", queue="b"), node="n1", phase=PodPhase.RUNNING, bound=MINUTE)
    made = engine([node("n1", 1), queue("a", 1), guarded, running, pod("mine")])
    assert not [d for d in made.schedule(MINUTE) if isinstance(d, EvictPod)]
    assert made.next_timer() == 11 * MINUTE
    made.request_pass()
    assert [d.pod for d in made.schedule(11 * MINUTE) if isinstance(d, EvictPod)] == ["default/theirs"]


def test_a_pod_that_shares_two_devices_owns_two() -> None:
    wide = pod("wide", 0, gpu_fraction="0.5", gpu_fraction_num_devices="2")
    made = engine([node("n1", 3), queue("a", 4), wide, pod("half", 0, created=1, gpu_fraction="0.5")])
    assert binds(made.schedule(1)) == {"default/wide": ("n1", (0, 1)), "default/half": ("n1", (0,))}


@pytest.mark.parametrize(
    ("notes", "asked"),
    [
        pytest.param({"gpu-memory": "20000"}, (1, 0.0, 20_000), id="memory in MiB"),
        pytest.param({"gpu-fraction": "0.5", "gpu-fraction-num-devices": "2"}, (2, 0.5, 0), id="parts of two GPUs"),
        pytest.param({"gpu-memory": "inf"}, (0, 0.0, 0), id="no number of 64 bits is nothing at all"),
        pytest.param({"gpu-memory": "1.5"}, (0, 0.0, 0), id="nor is a part of a MiB"),
        pytest.param({"gpu-memory": "9" * 400}, (0, 0.0, 0), id="nor is one too long"),
        pytest.param({"gpu-fraction": "nan"}, (0, 0.0, 0), id="a part that is no number"),
        pytest.param({"gpu-fraction": "0.5", "gpu-fraction-num-devices": "1e999"}, (1, 0.5, 0), id="then of one GPU"),
    ],
)
def test_annotations_ask_for_gpus_only_as_go_would_read_them(
    notes: dict[str, str], asked: tuple[int, float, int]
) -> None:
    request, _ = request_of(Pod(name="p", annotations=notes))
    assert (request.count, request.portion, request.gpu_memory) == asked
