"""Why Volcano lets a job in or not, by the limits of its queues: never, or not as long as others have its room."""

from gpuconsole.insight.pending.reasons import PendingReason
from gpuconsole.insight.pending.why import why
from gpuconsole.model.job import Job
from gpuconsole.model.objects import Object
from gpuconsole.model.resources import GPU
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.model.volcano import GroupCondition, PodGroup, VolcanoQueue, VolcanoSpec
from tests.support.snapshots import node, pod, world

TEXT = "queue resource quota insufficient: insufficient nvidia.com/gpu"
SAID = GroupCondition(type="Unschedulable", status=True, reason="NotEnoughResources", message=TEXT)


def refused(gpus: int, capability: int = 8, above: int = 16) -> Snapshot:
    """A job of so many GPUs that was not let in; in its queue `six` has four of its six, and `two` both of its two."""
    job = Job(kind="VolcanoJob", namespace="team", name="big", uid="u1", volcano=VolcanoSpec(queue="q"))
    things: list[Object] = [
        node("n1"),
        VolcanoQueue(name="top", capability={GPU: above}),
        VolcanoQueue(name="q", parent="top", capability={GPU: capability}),
        job,
        PodGroup(namespace="team", name="big-u1", queue="q", min_resources={GPU: gpus}, conditions=(SAID,)),
        PodGroup(namespace="team", name="six", queue="q", phase="Inqueue", min_resources={GPU: 6}),
        PodGroup(namespace="team", name="two", queue="q", phase="Running", min_resources={GPU: 2}),
        PodGroup(namespace="team", name="other", queue="top", phase="Running", min_resources={GPU: 1}),
        pod("six-0", "n1", (0, 1, 2, 3), annotations={"scheduling.k8s.io/group-name": "six"}),
        pod("two-0", "n1", (4, 5), annotations={"scheduling.k8s.io/group-name": "two"}),
    ]
    return world(things)


def told(snapshot: Snapshot) -> tuple[PendingReason, bool, str, tuple[str, ...]]:
    answer = why(snapshot, None, "VolcanoJob/team/big")
    return answer.code, answer.never, answer.explanation.headline, answer.explanation.lines


def test_who_has_the_room_of_the_queue_is_named_and_what_of_it_has_no_nodes_yet() -> None:
    assert told(refused(8)) == (
        PendingReason.QUOTA,
        False,
        "Not enqueued by Volcano: its queue would exceed its capability for nvidia.com/gpu.",
        ("team/six uses 6 GPUs of queue q, 2 of them not scheduled yet", "team/two uses 2 GPUs of queue q"),
    )


def test_a_gang_that_asks_for_more_than_its_queue_may_ever_have_waits_for_good() -> None:
    headline = "Its gang requests 9 GPUs; the capability of queue q is 8 GPUs: waiting does not help."
    assert told(refused(9)) == (PendingReason.EXCEEDS_MAX, True, headline, ())


def test_so_does_one_that_asks_for_more_than_a_queue_above_its_own_may_have() -> None:
    headline = "Its gang requests 9 GPUs; the capability of queue top is 4 GPUs: waiting does not help."
    assert told(refused(9, capability=20, above=4)) == (PendingReason.EXCEEDS_MAX, True, headline, ())
