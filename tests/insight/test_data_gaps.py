"""What decides has to be seen wholly, as far as this cluster's decisions depend on it."""

import pytest
from msgspec.structs import replace

from gpuconsole.insight.data_gaps import (
    PLACES,
    latency_assumption,
    missing_for_admission,
    missing_for_forecast,
    run_times,
)
from gpuconsole.model.clock import HOUR, MILLISECOND, SECOND
from gpuconsole.model.cluster import LimitRange, Namespace, Node, Pod
from gpuconsole.model.job import Job
from gpuconsole.model.kai import KaiPodGroup, KaiQueue
from gpuconsole.model.labels import LabelSelector
from gpuconsole.model.objects import TABLES, Object
from gpuconsole.model.queues import (
    AdmissionCheck,
    CheckRule,
    ClusterQueue,
    Cohort,
    LocalQueue,
    Quota,
    ResourceFlavor,
    Topology,
)
from gpuconsole.model.volcano import VolcanoQueue, VolcanoSpec
from gpuconsole.model.workloads import Workload
from gpuconsole.sim.policy import SimPolicy
from gpuconsole.sim.run_times import MEASURED, LatencyDistribution, LogNormal, learn_run_times
from tests.support.snapshots import A100, cluster_queue, unseen, world

ALONE = cluster_queue("alone", "", Quota(8))
ALWAYS = (Workload, ClusterQueue, LocalQueue, ResourceFlavor)
DEPENDS: dict[str, tuple[ClusterQueue, ResourceFlavor, tuple[type[Object], ...]]] = {
    "a queue alone": (ALONE, A100, ()),
    "a queue in a cohort": (replace(ALONE, cohort="org"), A100, (Cohort,)),
    "a queue with an admission check": (replace(ALONE, checks=(CheckRule("budget"),)), A100, (AdmissionCheck,)),
    "a queue for some namespaces": (
        replace(ALONE, namespace_selector=LabelSelector(match_labels={"team": "a"})),
        A100,
        (Namespace,),
    ),
    "a flavor that is placed by a topology": (ALONE, replace(A100, topology="racks"), (Topology, Node, Pod)),
}


@pytest.mark.parametrize(("queue", "flavor", "besides"), DEPENDS.values(), ids=DEPENDS)
def test_what_decides_is_what_the_queues_refer_to(
    queue: ClusterQueue, flavor: ResourceFlavor, besides: tuple[type[Object], ...]
) -> None:
    kinds = (*ALWAYS, Cohort, AdmissionCheck, Namespace, Topology, Node, Pod, LimitRange)
    decisive = {kind for kind in kinds if missing_for_admission(world([queue, flavor], seen=unseen(kind)))}
    assert decisive == {*ALWAYS, *besides}


def test_queues_of_other_schedulers_decide_what_comes_where_work_is_theirs() -> None:
    theirs: tuple[tuple[Object, type[Object]], ...] = (
        (Job(namespace="a", name="v", kind="VolcanoJob", volcano=VolcanoSpec()), VolcanoQueue),
        (KaiPodGroup(namespace="a", name="g"), KaiQueue),
    )
    for thing, kind in theirs:
        assert missing_for_forecast(world([ALONE, A100], seen=unseen(kind))) == ()
        among = world([ALONE, A100, thing], seen=unseen(kind))
        assert (missing_for_forecast(among), missing_for_admission(among)) == ((f"cannot list {TABLES[kind]}",), ())


def test_it_is_named_with_what_the_answer_rests_on_besides() -> None:
    snapshot = world([ALONE, A100], seen=unseen(Workload, Node, Cohort))
    assert missing_for_admission(snapshot) == ("cannot list workloads",)
    assert missing_for_admission(snapshot, *PLACES) == ("cannot list workloads", "cannot list nodes")
    assert missing_for_admission(world([ALONE, A100]), *PLACES) == ()


def test_a_kind_of_which_some_namespaces_are_read_is_not_seen_wholly() -> None:
    assert missing_for_admission(world([ALONE, A100], seen=unseen(Workload, within=("team",)))) == (
        "cannot list workloads",
    )


def test_run_times_that_nobody_learned_are_said_to_be_assumed() -> None:
    lasts = (
        "run times are not estimated from history: "
        "a workload without a known duration runs {}, twice that if it already ran longer"
    )
    assert run_times(SimPolicy()) == (lasts.format("1h"),)
    assert run_times(SimPolicy(durations=LogNormal(median=2 * HOUR, sigma=0.5))) == (lasts.format("about 2h"),)
    assert run_times(SimPolicy(run_times=learn_run_times((), {}))) == ()


def test_controller_latencies_are_named_with_what_evictions_take() -> None:
    assert latency_assumption(None) == "no controller latencies (latencies: none)"
    assert latency_assumption(MEASURED) == (
        "controller latencies as measured with Kueue 0.19.2: "
        "from the eviction of a Job to its quota release: median 1.3s, p99 2.6s"
    )
    steady = LatencyDistribution.constant(150 * MILLISECOND)
    quick = replace(MEASURED, job_suspend=steady, status_update=steady, workload_reconcile=steady)
    assert latency_assumption(quick) == (
        "controller latencies set by the scenario: "
        "from the eviction of a Job to its quota release: median 450ms, p99 450ms"
    )
    slow = replace(quick, status_update=LatencyDistribution.constant(90 * SECOND))
    assert latency_assumption(slow).endswith("from the eviction of a Job to its quota release: median 1m30s, p99 1m30s")
