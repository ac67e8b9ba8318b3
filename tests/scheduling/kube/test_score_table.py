"""The table of filters and scores that can be asked for any pod."""

from gpuconsole.model.labels import NodeTerm, PreferredTerm, Requirement, Taint
from gpuconsole.scheduling.placement import NodeScore
from tests.support.kube_cluster import Cluster, node, pod, template


def _cluster() -> Cluster:
    return Cluster(
        node("a", labels={"zone": "x"}),
        node("b", labels={"zone": "y"}, taints=(Taint("spare", effect="PreferNoSchedule"),)),
        node("cordoned", unschedulable=True),
        node("full", gpus=1),
    ).add(pod("old", 1, node="full"))


def test_every_node_has_a_verdict_of_every_filter_and_a_score_of_every_plugin() -> None:
    liked = PreferredTerm(10, NodeTerm((Requirement("zone", "In", ("y",)),)))
    table = _cluster().placement.scores(pod("new", template=template(1, preferred=(liked,))))
    rows = {row.node: row for row in table.rows}
    assert rows["cordoned"].refusal == "node(s) were unschedulable"
    assert rows["full"].refusal == "Insufficient nvidia.com/gpu"
    scored = [column.plugin for column in table.plugins if not column.skipped]
    assert scored == ["TaintToleration", "NodeAffinity", "NodeResourcesFit"]
    # (5 · 25 + 1 · 0 + 1 · 0) / 7
    assert rows["a"].scores[:3] == (NodeScore(0, 100, 300), NodeScore(0, 0, 0), NodeScore(17, 17, 17))
    assert rows["b"].scores[:3] == (NodeScore(1, 0, 0), NodeScore(10, 100, 200), NodeScore(17, 17, 17))
    assert (rows["a"].total, rows["b"].total, table.chosen) == (317, 217, "a")


def test_a_pod_that_runs_is_judged_as_if_it_came_now() -> None:
    cluster = _cluster()
    table = cluster.placement.scores(cluster.pods["old"])
    assert (table.chosen, table.ties, table.message) == ("full", (), "")
    assert cluster.placement.gpus_of("default/old") == (0,)


def test_a_pod_that_fits_nowhere_is_told_what_the_event_tells() -> None:
    table = _cluster().placement.scores(pod("big", 8))
    assert table.chosen == ""
    assert table.message == (
        "0/4 nodes are available: 1 node(s) were unschedulable, 3 Insufficient nvidia.com/gpu. preemption: 0/4 nodes"
        " are available: 1 Preemption is not helpful for scheduling, 3 No preemption victims found for incoming pod."
    )


def test_the_choice_of_the_table_is_the_choice_of_the_session() -> None:
    cluster = _cluster()
    chosen = cluster.placement.scores(pod("new")).chosen
    cluster.add(pod("new")).run()
    assert cluster.pods["new"].node == chosen
