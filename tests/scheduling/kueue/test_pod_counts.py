"""How many pods a workload has, and how many of them are done."""

from msgspec.structs import replace

from gpuconsole.model.pod_template import PodSet
from gpuconsole.model.workloads import Workload
from gpuconsole.scheduling.kueue.podset import counts_of, is_fewer, with_counts, with_reclaimable_pods

ELASTIC = Workload(name="w", pod_sets=(PodSet(name="driver"), PodSet(name="workers", count=5)))


def test_pod_sets_that_are_not_named_keep_their_number() -> None:
    assert counts_of(with_counts(ELASTIC, {"workers": 8, "gone": 3}).pod_sets) == {"driver": 1, "workers": 8}
    assert with_counts(ELASTIC, {"workers": 5}) is ELASTIC


def test_fewer_pods_in_one_pod_set_are_fewer_pods() -> None:
    assert is_fewer({"driver": 1, "workers": 4}, {"driver": 1, "workers": 5})
    assert not is_fewer({"driver": 2, "workers": 5}, {"driver": 1, "workers": 5})
    assert not is_fewer({"other": 1}, {"workers": 5})


def test_no_more_pods_are_done_than_there_are() -> None:
    shrunk = with_counts(replace(ELASTIC, reclaimable={"workers": 4}), {"workers": 3})
    assert with_reclaimable_pods(shrunk, shrunk.reclaimable).reclaimable == {"workers": 3}
    assert with_reclaimable_pods(shrunk, {"workers": 1, "unknown": 7}).reclaimable == {"workers": 1, "unknown": 7}
    told = with_reclaimable_pods(ELASTIC, {"workers": 2})
    assert with_reclaimable_pods(told, {"workers": 2}) is told
