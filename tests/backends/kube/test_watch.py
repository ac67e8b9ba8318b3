"""Lists and watches against a small API server: whatever happens on the way, the state is the cluster's in the end."""

import time
from collections.abc import Callable
from threading import Thread

import pytest
from msgspec.structs import replace

from gpuconsole.backends.base import Missing
from gpuconsole.backends.kube.backend import wall
from gpuconsole.backends.kube.client import ApiServerConnection, ConnectivityProbe
from gpuconsole.backends.kube.decode import Decoder, ObjectChanged, WatchMessage
from gpuconsole.backends.kube.discovery import discover
from gpuconsole.backends.kube.target import RequestedCluster
from gpuconsole.backends.kube.watch import Watch
from gpuconsole.model.cluster import Node, Pod
from gpuconsole.model.events import HistoryEvent, HistoryEventKind
from gpuconsole.model.job import Job
from gpuconsole.model.queues import ClusterQueue, LocalQueue
from gpuconsole.model.snapshot import Visibility, VisibilityGap
from gpuconsole.model.workloads import Workload
from tests.backends.kube.conftest import EAGER, LONGEST, Sight
from tests.support import api_documents
from tests.support.api_server import ApiServer

Make = Callable[..., Sight]


def until(so: Callable[[], object]) -> None:
    """Wait until something is so."""
    deadline = time.monotonic() + LONGEST
    while not so():
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.01)


@pytest.fixture(params=[True, False], ids=["streaming lists", "pages"])
def served(request: pytest.FixtureRequest, api: ApiServer) -> ApiServer:
    """A server with five nodes, which offers streaming lists or does not."""
    api.streaming = request.param
    for n in range(5):
        api.put("nodes", api_documents.node(f"n{n}"))
    return api


def test_all_that_is_there_is_read_once_and_changes_follow(served: ApiServer, sight: Make) -> None:
    see = sight()
    assert sorted(see.loaded().nodes) == ["n0", "n1", "n2", "n3", "n4"]
    served.put("nodes", api_documents.node("n5", gpus=4))
    served.delete("nodes", "/n0")
    changed = see.until(lambda s: "n5" in s.nodes and "n0" not in s.nodes)
    assert changed.nodes["n5"].gpus == 4
    assert served.asked["list nodes"] == (0 if served.streaming else 3), "pages of two"


def test_an_old_server_is_asked_for_pages_after_one_refusal(served: ApiServer, sight: Make) -> None:
    served.streaming = False
    sight().loaded()
    assert served.asked["watch nodes"] in (1, 2)


def test_a_stream_that_ends_is_taken_up_where_it_was(served: ApiServer, sight: Make) -> None:
    see = sight()
    see.loaded()
    listed = served.asked["list nodes"]
    served.put("nodes", api_documents.node("n5"))
    see.until(lambda s: "n5" in s.nodes)
    served.cut("nodes")
    served.put("nodes", api_documents.node("n6"))
    see.until(lambda s: "n6" in s.nodes)
    assert served.asked["list nodes"] == listed, "nothing was listed again"


def test_a_line_that_is_cut_in_the_middle_is_read_again(served: ApiServer, sight: Make) -> None:
    see = sight()
    see.loaded()
    served.broken.add("nodes")
    served.put("nodes", api_documents.node("n5"))
    see.until(lambda s: "n5" in s.nodes)


def test_410_lists_again_and_finds_what_was_deleted_meanwhile(served: ApiServer, sight: Make) -> None:
    see = sight()
    before = see.loaded()
    with served.lock:
        served.delete("nodes", "/n1", silently=True)
        served.put("nodes", api_documents.node("n7"))
        served.expire()
        served.cut("nodes")
    after = see.until(lambda s: "n1" not in s.nodes)
    assert sorted(after.nodes) == ["n0", "n2", "n3", "n4", "n7"]
    assert after.nodes["n0"] is before.nodes["n0"], "what did not change was not told again"


def test_a_bookmark_moves_on_where_the_watch_goes_on_from(served: ApiServer, sight: Make) -> None:
    see = sight()
    see.loaded()
    served.expire()
    served.bookmark("nodes")
    watched = served.asked["watch nodes"]
    see.until(lambda _: all(watcher.empty() for _, watcher in served.watchers))
    served.cut("nodes")
    see.until(lambda _: served.asked["watch nodes"] > watched)
    served.put("nodes", api_documents.node("n8"))
    see.until(lambda s: "n8" in s.nodes)
    assert served.asked["list nodes"] == (0 if served.streaming else 3), "410 would have listed again"


@pytest.mark.parametrize("code", [429, 500, 503])
def test_a_server_that_is_out_of_sorts_is_asked_again_later(served: ApiServer, sight: Make, code: int) -> None:
    served.moods += [("/nodes", code, {})] * 3
    assert len(sight().loaded().nodes) == 5


def test_what_is_forbidden_is_named_and_the_rest_is_shown(served: ApiServer, sight: Make) -> None:
    served.put("clusterqueues", api_documents.cluster_queue("cq"))
    served.forbidden = lambda verb, plural, namespace: plural == "nodes"
    see = sight()
    snapshot = see.loaded()
    health = see.backend.health
    assert (list(snapshot.nodes), list(snapshot.cluster_queues)) == ([], ["cq"])
    assert health.missing == (Missing("list", "nodes"),)
    assert (health.readable, health.kinds) == (8, 9)
    assert served.asked["list nodes"] + served.asked["watch nodes"] == 0, "it was not even tried"


def test_who_may_list_but_not_watch_is_told_so(served: ApiServer, sight: Make) -> None:
    served.streaming = False
    served.forbidden = lambda verb, plural, namespace: plural == "nodes" and verb == "watch"
    see = sight()
    see.until(lambda _: see.backend.health.missing)
    assert see.backend.health.missing == (Missing("watch", "nodes"),)


def test_a_right_that_is_granted_later_is_used(served: ApiServer, sight: Make) -> None:
    served.forbidden = lambda verb, plural, namespace: plural == "nodes"
    see = sight()
    see.loaded()
    served.forbidden = lambda verb, plural, namespace: False
    see.until(lambda s: len(s.nodes) == 5)
    assert see.backend.health.missing == ()


def test_a_right_that_is_taken_away_for_a_moment_only_leaves_the_data_where_they_are(
    served: ApiServer, sight: Make
) -> None:
    see = sight()
    see.loaded()
    served.forbidden = lambda verb, plural, namespace: True
    served.cut("nodes")
    see.until(lambda _: any("nodes" in problem for problem in see.backend.health.unread))
    assert (len(see.look().nodes), see.backend.health.missing) == (5, ())
    served.forbidden = lambda verb, plural, namespace: False
    served.put("nodes", api_documents.node("n9"))
    see.until(lambda s: "n9" in s.nodes)


def test_a_right_that_is_taken_away_for_good_takes_the_data_along(served: ApiServer, sight: Make) -> None:
    see = sight()
    see.loaded()
    served.forbidden = lambda verb, plural, namespace: plural == "nodes"
    served.cut("nodes")
    see.until(lambda s: not s.nodes)
    assert [right.resource for right in see.backend.health.missing] == ["nodes"]


def test_a_server_that_was_just_restarted_is_asked_again_soon_though_it_forbids_everything(
    served: ApiServer, sight: Make
) -> None:
    see = sight(pace=replace(EAGER, shortest=0.05, eager=0.1, longest=3600, doubt=3600, recheck=3600))
    see.loaded()
    served.moods += [("/nodes", 403, {})] * 10
    served.cut("nodes")
    served.put("nodes", api_documents.node("n9"))
    see.until(lambda s: "n9" in s.nodes and not see.backend.health.lost)


def test_a_watch_that_rests_goes_on_at_once_when_the_server_is_back_after_an_outage(api: ApiServer) -> None:
    api.put("nodes", api_documents.node("n0"))
    api.moods.append(("/nodes", 500, {}))
    connection = ApiServerConnection(RequestedCluster(kubeconfig=str(api.kubeconfig)))
    nodes = next(served for served in discover(connection) if served.kind == "Node")
    told: list[WatchMessage] = []
    watch = Watch(
        connection,
        Decoder(nodes),
        namespace="",
        tell=told.extend,
        gate=ConnectivityProbe(connection, reopened=lambda: None),
        wall=wall,
        pace=replace(EAGER, shortest=3600, longest=3600),
    )
    thread = Thread(target=watch.run, daemon=True)
    thread.start()
    try:
        until(lambda: watch.problem)
        assert told == []
        watch.reopen()
        assert watch.synced.wait(LONGEST)
        assert [news.obj.name for news in told if isinstance(news, ObjectChanged) and isinstance(news.obj, Node)] == [
            "n0"
        ]
    finally:
        watch.stop()
        thread.join(LONGEST)
    assert not thread.is_alive()


def test_a_user_with_one_namespace_sees_that_one(served: ApiServer, sight: Make) -> None:
    served.put("pods", api_documents.pod("mine"))
    served.put("pods", api_documents.pod("theirs", namespace="other"))
    served.forbidden = lambda verb, plural, namespace: namespace != "team"
    see = sight()
    assert list(see.loaded().pods) == ["team/mine"]
    missing = {str(right) for right in see.backend.health.missing}
    assert "cannot list pods at the cluster scope" in missing
    assert "cannot list nodes at the cluster scope" in missing


def test_a_user_who_may_nothing_sees_nothing_and_is_told_all(served: ApiServer, sight: Make) -> None:
    served.forbidden = lambda verb, plural, namespace: True
    see = sight()
    see.loaded()
    health = see.backend.health
    assert (health.readable, health.kinds, len(health.missing)) == (0, 9, 9)
    assert not any(see.backend.snapshot().seen.all_of(kind) for kind in (Node, Pod, Job, ClusterQueue, HistoryEvent))


def test_a_snapshot_says_of_which_kinds_not_everything_is_in_it(served: ApiServer, sight: Make) -> None:
    served.forbidden = lambda verb, plural, namespace: plural == "nodes" or (plural == "pods" and namespace != "team")
    see = sight()
    see.loaded()
    nodes, pods = (f"cannot list {kind} at the cluster scope" for kind in ("nodes", "pods"))
    assert see.backend.snapshot().seen == Visibility(
        gaps=(
            VisibilityGap(table="nodes", resource="nodes", why=nodes),
            VisibilityGap(table="pods", resource="pods", why=pods, namespaces=("team",)),
        ),
        assumed=see.backend.assumed,
    )
    assert see.backend.seen is see.backend.snapshot().seen


def test_a_right_that_is_missing_in_one_of_the_named_namespaces_is_named_as_well(
    served: ApiServer, sight: Make
) -> None:
    served.forbidden = lambda verb, plural, namespace: plural == "pods" and namespace == "two"
    see = sight("one", "two")
    see.loaded()
    right, rest = "cannot list pods in namespace two", "only namespaces one, two are read"
    seen = see.backend.snapshot().seen
    assert (seen.missing_reasons(Pod), seen.missing_reasons(Workload)) == ((f"{right}, {rest}",), (rest,))
    assert (seen.all_of(Pod, within="one"), seen.all_of(Pod, within="two")) == (True, False)


def test_where_namespaces_are_named_nothing_else_of_a_namespaced_kind_is_seen(served: ApiServer, sight: Make) -> None:
    see = sight("one", "two")
    see.loaded()
    seen = see.backend.snapshot().seen
    assert seen.all_of(Node, ClusterQueue)
    assert seen.missing_reasons(Pod, Workload, LocalQueue) == ("only namespaces one, two are read",)
    assert seen.all_of(Pod, Workload, LocalQueue, within="two")


def test_only_the_namespaces_that_were_asked_for_are_read(served: ApiServer, sight: Make) -> None:
    for namespace in ("one", "two", "three"):
        served.put("pods", api_documents.pod("p", namespace=namespace))
    assert sorted(sight("one", "two").loaded().pods) == ["one/p", "two/p"]


def test_a_server_that_goes_away_leaves_stale_marks_and_comes_back_by_itself(served: ApiServer, sight: Make) -> None:
    see = sight(quiet=0.1)
    see.loaded()
    served.moods += [("readyz", 500, {})] * 4
    served.moods += [("nodes", 500, {})] * 2
    served.cut("nodes")
    see.until(lambda _: see.backend.health.lost)
    served.put("nodes", api_documents.node("n9"))
    see.until(lambda s: "n9" in s.nodes and not see.backend.health.lost)


def test_it_says_who_it_is(served: ApiServer, sight: Make) -> None:
    sight().loaded()
    assert {agent.partition("/")[0] for agent in served.agents} == {"gpuconsole"}


def test_pods_come_after_the_jobs_that_say_which_of_them_are_wanted(served: ApiServer, sight: Make) -> None:
    served.put("workloads", api_documents.workload("wl", job="train"))
    served.put("pods", api_documents.pod("launcher", 0, job="train"))
    served.put("pods", api_documents.pod("stranger", 0, job="other"))
    pods = sight().loaded().pods
    assert [(pod.key, pod.workload) for pod in pods.all()] == [("team/launcher", "team/wl")]


def test_queues_are_read_first_then_nodes_then_workloads_then_pods(served: ApiServer, sight: Make) -> None:
    sight().loaded()
    asked = list(dict.fromkeys(request.partition(" ")[2] for request in served.asked))
    queues = {"clusterqueues", "cohorts", "localqueues", "resourceflavors"} & set(asked)
    assert "clusterqueues" in queues
    assert set(asked[: len(queues)]) == queues
    assert asked.index("nodes") < asked.index("workloads") < asked.index("pods")


def test_a_new_node_and_a_lost_one_are_lines_of_history(served: ApiServer, sight: Make) -> None:
    see = sight()
    see.loaded()
    assert see.lines == [], "nodes that were there are no news"
    served.put("nodes", api_documents.node("n5"))
    down = api_documents.node("n0")
    down["status"]["conditions"][0]["status"] = "False"
    served.put("nodes", down)
    see.until(lambda _: len(see.lines) == 2)
    assert [(line.what, line.node) for line in see.lines] == [
        (HistoryEventKind.NODE_UP, "n5"),
        (HistoryEventKind.NODE_DOWN, "n0"),
    ]
