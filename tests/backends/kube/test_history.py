"""What changes mean: lines of history from conditions, from Events where nobody looked, and names joined together."""

from collections.abc import Callable
from typing import Any

import pytest

from gpuconsole.insight.preemption.history import rows
from gpuconsole.model.clock import SECOND, parse_time
from gpuconsole.model.events import HistoryEvent, HistoryEventKind
from tests.backends.kube.conftest import Sight
from tests.support import api_documents
from tests.support.api_documents import Document, condition
from tests.support.api_server import ApiServer

Make = Callable[..., Sight]
ADMITTED_AT, EVICTED_AT = "2026-01-05T08:10:00Z", "2026-01-05T08:40:00Z"
MESSAGE = (
    "Preempted to accommodate a workload (UID: uid-workloads-big, JobUID: x) due to reclamation within the cohort; "
    "preemptor path: /research/cq-b; preemptee path: /research/cq-a"
)


def running(name: str, job: str = "") -> Document:
    conditions = [condition("QuotaReserved", since=ADMITTED_AT), condition("Admitted", since=ADMITTED_AT)]
    return api_documents.workload(name, *conditions, job=job, admission=api_documents.admission("cq-a"))


def preempted(name: str) -> Document:
    document = running(name)
    document["status"]["conditions"] += [
        condition("Evicted", True, "Preempted", MESSAGE, EVICTED_AT),
        condition("Preempted", True, "InCohortReclamation", MESSAGE, EVICTED_AT),
    ]
    return document


def member(name: str, *, node: str = "n", started: str = "", **status: str) -> Document:
    """A pod of the workload `victim`."""
    pod = api_documents.pod(
        name, node=node, annotations={"kueue.x-k8s.io/workload": "victim"}, creationTimestamp=ADMITTED_AT
    )
    pod["status"] |= {"startTime": started, **status} if started else status
    return pod


def told(see: Sight) -> list[tuple[HistoryEventKind, str]]:
    return [(line.what, line.workload or line.pod) for line in see.lines]


def test_the_life_of_a_workload(api: ApiServer, sight: Make) -> None:
    api.put("localqueues", api_documents.local_queue("lq", "cq-a"))
    see = sight()
    see.loaded()
    waits = condition("QuotaReserved", False, "Pending", "couldn't assign flavors to pod set main: …")
    api.put("workloads", api_documents.workload("wl", waits))
    see.until(lambda _: len(see.lines) == 2)
    api.put("workloads", running("wl"))
    see.until(lambda _: len(see.lines) == 3)
    ended = running("wl")
    ended["status"]["conditions"].append(condition("Finished", True, "Succeeded", "done"))
    api.put("workloads", ended)
    see.until(lambda _: len(see.lines) == 4)
    api.delete("workloads", "team/wl")
    see.until(lambda s: not s.workloads)
    assert told(see) == [
        (HistoryEventKind.SUBMITTED, "team/wl"),
        (HistoryEventKind.PENDING, "team/wl"),
        (HistoryEventKind.ADMITTED, "team/wl"),
        (HistoryEventKind.FINISHED, "team/wl"),
    ], "that it was tidied away afterwards is no news"
    assert {line.queue for line in see.lines} == {"cq-a"}
    admitted = see.lines[2]
    assert (admitted.time, admitted.waited) == (parse_time(ADMITTED_AT), 600 * SECOND)
    assert (admitted.flavor, admitted.gpus) == ("a100", 2)


def test_a_preemption_names_who_took_the_place_by_which_rule_and_what_was_lost(api: ApiServer, sight: Make) -> None:
    api.put("localqueues", api_documents.local_queue("lq", "cq-b"))
    api.put("workloads", api_documents.workload("big"))
    api.put("workloads", running("victim"))
    api.put("pods", member("victim-0", started=ADMITTED_AT))
    see = sight()
    see.loaded()
    api.put("workloads", preempted("victim"))
    see.until(lambda _: len(see.lines) == 2)
    facts: dict[str, Any] = {
        "time": parse_time(EVICTED_AT),
        "workload": "team/victim",
        "queue": "cq-a",
        "by": "team/big",
        "by_queue": "cq-b",
        "message": MESSAGE,
        "flavor": "a100",
        "gpus": 2,
        "lost_gpu_seconds": 30 * 60 * 2.0,
    }
    assert see.lines == [
        HistoryEvent(what=HistoryEventKind.PREEMPTED, reason="InCohortReclamation", **facts),
        HistoryEvent(what=HistoryEventKind.EVICTED, reason="Preempted", **facts),
    ]


LOST: dict[str, tuple[list[Document], float | None]] = {
    "no pod had a node": ([member("a", node="")], 0.0),
    "one pod of two had a node, and they work together": (
        [member("a", started=ADMITTED_AT), member("b", node="")],
        0.0,
    ),
    "since the last pod began": (
        [member("a", started=ADMITTED_AT), member("b", started="2026-01-05T08:30:00Z")],
        10 * 60 * 4.0,
    ),
    "no pod of it is seen": ([], None),
}


@pytest.mark.parametrize(("pods", "lost"), LOST.values(), ids=LOST.keys())
def test_what_is_lost_is_the_gpu_time_of_pods_that_ran(
    api: ApiServer, sight: Make, pods: list[Document], lost: float | None
) -> None:
    api.put("workloads", running("victim"))
    for pod in pods:
        api.put("pods", pod)
    see = sight()
    see.loaded()
    api.put("workloads", preempted("victim"))
    see.until(lambda _: len(see.lines) == 2)
    assert [(line.lost_gpu_seconds, line.lost_unknown) for line in see.lines] == [(lost or 0.0, lost is None)] * 2


def test_pods_that_left_before_the_word_of_their_eviction_came_count(api: ApiServer, sight: Make) -> None:
    api.put("workloads", running("victim"))
    api.put("pods", member("victim-0", started=ADMITTED_AT))
    see = sight()
    see.loaded()
    api.delete("pods", "team/victim-0")
    see.until(lambda s: not s.pods)
    api.put("workloads", preempted("victim"))
    see.until(lambda _: len(see.lines) == 2)
    assert see.lines[0].lost_gpu_seconds == 30 * 60 * 2.0


def test_what_happened_before_we_looked_comes_from_events_in_order_of_time(api: ApiServer, sight: Make) -> None:
    api.put("workloads", running("victim"))
    api.put("events", api_documents.event("e2", "victim", "EvictedDueToPreempted", MESSAGE, EVICTED_AT))
    api.put("events", api_documents.event("e1", "victim", "Preempted", MESSAGE, EVICTED_AT))
    api.put("events", api_documents.event("e0", "victim", "Admitted", "Admitted by …", ADMITTED_AT))
    see = sight()
    see.loaded()
    see.until(lambda _: len(see.lines) >= 3)
    assert [(line.what, line.reason) for line in see.lines] == [
        (HistoryEventKind.ADMITTED, ""),
        (HistoryEventKind.PREEMPTED, "InCohortReclamation"),
        (HistoryEventKind.EVICTED, "Preempted"),
    ]
    assert see.lines[1].by == "uid-workloads-big", "whom nobody knows any more is named by its UID"


def test_a_victim_that_was_let_in_again_before_we_looked_is_known_to_be(api: ApiServer, sight: Make) -> None:
    """Two admissions within seconds: the event of the second one counts for the same as that of the first."""
    back = "2026-01-05T08:40:05Z"
    again = api_documents.workload(
        "victim", condition("Admitted", since=back), admission=api_documents.admission("cq-a")
    )
    api.put("workloads", again)
    api.put("events", api_documents.event("e0", "victim", "Admitted", "Admitted by …", "2026-01-05T08:39:55Z"))
    api.put("events", api_documents.event("e1", "victim", "Preempted", MESSAGE, EVICTED_AT))
    api.put("events", api_documents.event("e2", "victim", "EvictedDueToPreempted", MESSAGE, EVICTED_AT))
    api.put("events", api_documents.event("e3", "victim", "Admitted", "Admitted by …", back))
    see = sight()
    see.loaded()
    see.until(lambda _: len(see.lines) >= 4)
    (row,) = rows(see.lines)
    assert (row.latency, row.at_most) == (5 * SECOND, True)


def test_what_was_lost_before_we_looked_is_unknown(api: ApiServer, sight: Make) -> None:
    """`late` was gone when it was seen first; `pending` held nothing yet; of `victim` an Event tells."""
    late = api_documents.workload("late")
    late["status"]["conditions"] = preempted("late")["status"]["conditions"][2:]
    api.put("workloads", late)
    api.put("workloads", api_documents.workload("victim"))
    api.put("events", api_documents.event("e", "victim", "EvictedDueToPreempted", MESSAGE, EVICTED_AT))
    api.put("workloads", api_documents.workload("pending", condition("QuotaReserved", since=ADMITTED_AT)))
    see = sight()
    see.loaded()
    see.until(lambda _: len(see.lines) >= 3)
    gone = preempted("pending")
    gone["status"]["conditions"] = [one for one in gone["status"]["conditions"] if one["type"] != "Admitted"]
    api.put("workloads", gone)
    see.until(lambda _: len(see.lines) >= 5)
    assert sorted((line.workload, line.what, line.lost_unknown, line.lost_gpu_seconds) for line in see.lines) == [
        ("team/late", HistoryEventKind.EVICTED, True, 0.0),
        ("team/late", HistoryEventKind.PREEMPTED, True, 0.0),
        ("team/pending", HistoryEventKind.EVICTED, False, 0.0),
        ("team/pending", HistoryEventKind.PREEMPTED, False, 0.0),
        ("team/victim", HistoryEventKind.EVICTED, True, 0.0),
    ]


def test_what_conditions_told_is_not_told_again_by_an_event(api: ApiServer, sight: Make) -> None:
    api.put("workloads", preempted("victim"))
    api.put("events", api_documents.event("e", "victim", "Preempted", MESSAGE, EVICTED_AT))
    see = sight()
    see.loaded()
    assert told(see) == [(HistoryEventKind.PREEMPTED, "team/victim"), (HistoryEventKind.EVICTED, "team/victim")]


def test_an_event_of_the_reservation_does_not_come_after_the_admission(api: ApiServer, sight: Make) -> None:
    """Kueue sets both conditions at once where there are no checks, and writes an Event of each."""
    api.put("workloads", api_documents.workload("wl"))
    see = sight()
    see.loaded()
    api.put("workloads", running("wl"))
    for name in ("QuotaReserved", "Admitted", "Preempted"):
        api.put("events", api_documents.event(name.lower(), "wl", name, MESSAGE, ADMITTED_AT))
    see.until(lambda _: len(see.lines) >= 2 and see.lines[-1].what is HistoryEventKind.PREEMPTED)
    assert [what for what, _ in told(see)][-2:] == [HistoryEventKind.ADMITTED, HistoryEventKind.PREEMPTED]


def test_an_event_of_an_earlier_preemption_does_not_make_the_newest_one_be_told_again(
    api: ApiServer, sight: Make
) -> None:
    api.put("workloads", preempted("victim"))
    api.put("events", api_documents.event("e1", "victim", "Preempted", MESSAGE, ADMITTED_AT))
    api.put("events", api_documents.event("e2", "victim", "Preempted", MESSAGE, EVICTED_AT))
    see = sight()
    see.loaded()
    see.until(lambda _: len(see.lines) >= 3)
    assert [line.time for line in see.lines if line.what is HistoryEventKind.PREEMPTED] == [
        parse_time(ADMITTED_AT),
        parse_time(EVICTED_AT),
    ]


def test_a_preemptor_that_is_read_after_its_victim_is_named_and_known_to_have_its_place(
    api: ApiServer, sight: Make
) -> None:
    victim, big = preempted("a-victim"), running("big")
    victim["status"]["conditions"][0] = condition("QuotaReserved", False, "Pending", "…", "2026-01-05T08:40:30Z")
    big["status"]["conditions"] = [
        condition(kind, since="2026-01-05T08:40:31Z") for kind in ("QuotaReserved", "Admitted")
    ]
    api.put("workloads", victim)
    api.put("workloads", big)
    see = sight()
    see.loaded()
    see.until(lambda _: len(see.lines) >= 4)
    assert [(line.what, line.workload, line.by) for line in see.lines] == [
        (HistoryEventKind.PREEMPTED, "team/a-victim", "team/big"),
        (HistoryEventKind.EVICTED, "team/a-victim", "team/big"),
        (HistoryEventKind.REQUEUED, "team/a-victim", ""),
        (HistoryEventKind.ADMITTED, "team/big", ""),
    ]
    assert [line.time - see.lines[0].time for line in see.lines] == [0, 0, 30 * SECOND, 31 * SECOND]


def test_a_pod_finds_its_workload_though_that_comes_later(api: ApiServer, sight: Make) -> None:
    api.put("pods", api_documents.pod("p", 2, job="train", node="n1"))
    see = sight()
    assert see.loaded().pods["team/p"].workload == ""
    api.put("workloads", running("wl", job="train"))
    see.until(lambda s: s.pods["team/p"].workload == "team/wl")


def test_pods_are_shown_on_free_gpus_of_their_node_and_keep_them(api: ApiServer, sight: Make) -> None:
    for name in ("a", "b"):
        api.put("pods", api_documents.pod(name, 2, node="n1"))
    see = sight()
    before = see.loaded().pods
    assert sorted(index for pod in before.all() for index in pod.gpus) == [0, 1, 2, 3]
    api.delete("pods", "team/a")
    api.put("pods", api_documents.pod("c", 3, node="n1"))
    after = see.until(lambda s: "team/c" in s.pods and "team/a" not in s.pods).pods
    assert after["team/b"].gpus == before["team/b"].gpus
    assert not set(after["team/c"].gpus) & set(after["team/b"].gpus)


def test_the_snapshot_can_be_tried_out(api: ApiServer, sight: Make) -> None:
    api.put("namespaces", {"metadata": {"name": "team"}})
    api.put("resourceflavors", {"metadata": {"name": "a100"}, "spec": {}})
    api.put("nodes", api_documents.node("n1"))
    api.put("clusterqueues", api_documents.cluster_queue("cq-a"))
    api.put("localqueues", api_documents.local_queue("lq", "cq-a"))
    api.put("workloads", api_documents.workload("wl"))
    see = sight()
    see.loaded()
    future = see.backend.fork()
    assert future.now >= see.state.time
    future.advance(future.now + 60 * SECOND)
    assert future.snapshot().workloads["team/wl"].admitted, "our engine admits what Kueue has not looked at yet"
    assert not see.look().workloads["team/wl"].admitted, "and nothing of that is written"
