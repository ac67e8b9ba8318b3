"""PodGroups of the Coscheduling plugin: pods that name one by a label start together."""

from gpuconsole.model.cluster import Pod
from gpuconsole.model.resources import GPU
from gpuconsole.model.volcano import PodGroup
from tests.support.kube_cluster import Cluster, node, pods

GROUP = "scheduling.x-k8s.io/pod-group"


def members(count: int, gpus: int = 1, *, label: str = GROUP, **fields: object) -> list[Pod]:
    return pods("train", count, gpus, labels={label: "train"}, **fields)


def cluster(gpus: int, group: PodGroup | None) -> Cluster:
    made = Cluster(node("a", gpus))
    if group is not None:
        made.placement.apply(group, 0)
    return made


def test_pods_wait_until_min_member_of_them_fit() -> None:
    made = cluster(2, PodGroup(name="train", min_member=3)).add(members(3))
    made.run()
    assert made.where() == {}
    assert made.told("train-0") == (
        "gang default/train not scheduled: 2 of 3 pods fit; 0/1 nodes are available: 1 Insufficient nvidia.com/gpu. "
        "preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod."
    )
    made.placement.apply(node("b", 1), 0)
    made.run()
    assert made.waiting() == []


def test_pods_beyond_min_member_start_when_they_fit() -> None:
    made = cluster(2, PodGroup(name="train", min_member=2)).add(members(3))
    made.run()
    assert (made.where(), made.waiting()) == ({"a": ["train-0", "train-1"]}, ["train-2"])


def test_pods_wait_for_their_group_to_be_made() -> None:
    made = cluster(4, None).add(members(2))
    made.run()
    assert made.told("train-0") == "gang default/train waits for its PodGroup: it does not exist"
    made.placement.apply(PodGroup(name="train", min_member=3), 0)
    made.run()
    assert made.told("train-0") == "gang default/train waits for its pods: 2 of 3 exist"
    made.placement.apply(PodGroup(name="train", min_member=2), 0)
    made.run()
    assert made.waiting() == []


def test_older_releases_name_it_by_another_label() -> None:
    group = PodGroup(name="train", min_member=2)
    made = cluster(1, group).add(members(2, label="pod-group.scheduling.sigs.k8s.io"))
    made.run()
    assert made.where() == {}


def test_the_cluster_has_to_have_min_resources_free() -> None:
    made = cluster(4, PodGroup(name="train", min_member=1, min_resources={GPU: 6, "cpu": 1000})).add(members(1))
    made.run()
    assert made.told("train-0") == (
        "gang default/train not scheduled: the cluster has less nvidia.com/gpu free than its minResources"
    )
    made.placement.apply(node("b", 2), 0)
    made.run()
    assert made.waiting() == []


def test_a_job_whose_pods_name_a_group_needs_only_as_many_as_it_says() -> None:
    made = cluster(2, PodGroup(name="train", min_member=2))
    made.add(members(3, gang="Job/train", gang_size=3)).run()
    assert made.where() == {"a": ["train-0", "train-1"]}
