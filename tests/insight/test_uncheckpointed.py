"""What an eviction takes: the GPU time of pods that ran, since the last checkpoint, and nothing that nobody knows."""

import pytest
from msgspec.structs import replace

from gpuconsole.insight.index.gpu_time import uncheckpointed_gpu_time
from gpuconsole.model.clock import HOUR, MINUTE
from gpuconsole.model.cluster import Pod, PodPhase
from gpuconsole.model.job import BatchRules, Job, ReplicaRules
from gpuconsole.model.objects import Object
from gpuconsole.model.workloads import Condition, Workload
from tests.support.snapshots import START, pod, running, unseen, waiting, world

AGO = START - HOUR
BARE = replace(running("w", "team/lq", 4, "q", minutes_ago=90), conditions=(Condition("Admitted", True, since=AGO),))
OWNED = replace(BARE, owner="PyTorchJob/team/w")
GANG = Job(kind="PyTorchJob", namespace="team", name="w", started=AGO)
EACH = Job(kind="Job", namespace="team", name="w", rules=BatchRules(completions=2))
SERVES = Job(kind="Deployment", namespace="team", name="w", rules=ReplicaRules())


def member(name: str, minutes_ago: int | None = None, **fields: object) -> Pod:
    """A pod with two GPUs that began so many minutes ago; one that waits."""
    if minutes_ago is None:
        return pod(name, wants=2, workload="team/w")
    given = {"started": START - minutes_ago * MINUTE, **fields}
    return replace(pod(name, "n", (0, 1), workload="team/w"), **given)


CASES: dict[str, tuple[Workload, Job | None, tuple[Pod, ...], float | None]] = {
    "nothing where no pod exists": (BARE, None, (), 0),
    "nothing where no pod has a node": (BARE, None, (member("a"), member("b")), 0),
    "what its pods did, not since it was admitted": (BARE, None, (member("a", 30), member("b", 30)), 2),
    "work of all together begins when the last of them runs": (OWNED, GANG, (member("a", 60), member("b", 15)), 1),
    "work of all together stands still while one waits": (OWNED, GANG, (member("a", 60), member("b")), 0),
    "who joined late has done no more than since then": (
        replace(OWNED, admission=None),
        replace(GANG, min_available=1, checkpoint_interval=30 * MINUTE),
        (member("a", 50), member("b", 5)),
        2 * 20 / 60 + 2 * 5 / 60,
    ),
    "each for itself works from its own start": (
        replace(BARE, owner=EACH.key),
        EACH,
        (member("a", 60), member("b", 15)),
        2.5,
    ),
    "each for itself works while others wait": (replace(BARE, owner=EACH.key), EACH, (member("a", 60), member("b")), 2),
    "each since its own last checkpoint": (
        replace(BARE, owner=EACH.key),
        replace(EACH, checkpoint_interval=20 * MINUTE),
        (member("a", 50), member("b", 30)),
        4 * 10 / 60,
    ),
    "a server has nothing to finish": (replace(BARE, owner=SERVES.key), SERVES, (member("a", 60),), 0),
    "what has ended or leaves is lost already": (
        BARE,
        None,
        (member("a", 60), member("b", 90, phase=PodPhase.SUCCEEDED)),
        2,
    ),
    "a pod that runs since nobody knows when": (BARE, None, (member("a", 60, started=0),), None),
    "pods of a kind of job that is not known": (replace(BARE, owner="FluxJob/team/w"), None, (), None),
    "pods that run elsewhere": (replace(BARE, cluster="worker"), None, (), None),
    "pods that are not seen, and run by PodsReady": (running("w", "team/lq", 4, "q", minutes_ago=30), None, (), 2),
    "nothing while it waits": (waiting("w", "team/lq", 4), None, (), 0),
}


@pytest.mark.parametrize(("workload", "job", "pods", "hours"), CASES.values(), ids=CASES.keys())
def test_an_eviction_takes_the_work_of_pods_that_ran(
    workload: Workload, job: Job | None, pods: tuple[Pod, ...], hours: float | None
) -> None:
    things: list[Object] = [workload, *pods, *([job] if job is not None else [])]
    lost = uncheckpointed_gpu_time(world(things), workload)
    assert (lost / HOUR if lost is not None else None) == (pytest.approx(hours) if hours is not None else None)


def test_nothing_is_known_of_pods_that_may_not_be_listed() -> None:
    assert uncheckpointed_gpu_time(world([BARE], seen=unseen(Pod)), BARE) is None
    assert uncheckpointed_gpu_time(world([BARE], seen=unseen(Pod, within=("team",))), BARE) == 0
