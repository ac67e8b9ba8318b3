"""The stand-in for Kueue's controllers writes what the real one was seen to write, and jobs really run by it."""

from collections.abc import Iterator

import pytest

from tests.live import stock
from tests.live.api import Api, Manifest, until
from tests.live.controlplane import ControlPlane
from tests.live.identities import KUEUE
from tests.live.kueue.controllers import KueueStandIn
from tests.live.paths import CLUSTER_QUEUES, JOBS, WORKLOADS

pytestmark = pytest.mark.live


@pytest.fixture
def api(plane: ControlPlane) -> Iterator[Api]:
    """A cluster with two ClusterQueues of a cohort, cq-a with 16 GPUs and cq-b with 8, and Kueue at work."""
    with stock.queues(plane.api()) as api, KueueStandIn(plane.api(KUEUE)):
        yield api


def workload_of(api: Api, job: str) -> Manifest:
    def find() -> Manifest | None:
        found = [w for w in api.items(WORKLOADS) if w["metadata"]["ownerReferences"][0]["name"] == job]
        return found[0] if found else None

    found: Manifest = until(find)
    return found


def condition(thing: Manifest, kind: str) -> tuple[str, str, str]:
    for one in thing.get("status", {}).get("conditions", ()):
        if one["type"] == kind:
            return one["status"], one["reason"], one["message"]
    return "", "", ""


def wait_for(api: Api, job: str, kind: str, status: str = "True") -> tuple[str, str]:
    """Reason and message of a condition as soon as it has this status."""
    found: tuple[str, str, str] = until(lambda: (c := condition(workload_of(api, job), kind))[0] == status and c)
    return found[1:]


def said(api: Api, job: str) -> list[tuple[str, str]]:
    name = workload_of(api, job)["metadata"]["name"]
    events = api.items(f"/api/v1/namespaces/team-a/events?fieldSelector=involvedObject.name%3D{name}")
    return [(event["reason"], event["message"]) for event in events]


def test_a_job_is_admitted_runs_and_ends(api: Api) -> None:
    api.create(stock.job("fits", "lq-a", gpus=8, seconds=2))
    assert wait_for(api, "fits", "PodsReady")[1] == "All pods reached readiness and the workload is running"
    assert wait_for(api, "fits", "Finished") == ("Succeeded", "Reached expected number of succeeded pods")
    workload = workload_of(api, "fits")
    assert condition(workload, "QuotaReserved") == ("True", "QuotaReserved", "Quota reserved in ClusterQueue cq-a")
    assert condition(workload, "Admitted") == ("True", "Admitted", "The workload is admitted")
    told = ["QuotaReserved", "Admitted", "FinishedWorkload"]
    until(lambda: [reason for reason, _ in said(api, "fits")] == told)


def test_a_job_that_never_fits_is_told_why(api: Api) -> None:
    api.create(stock.job("huge", "lq-a", gpus=8, pods=4))
    until(lambda: "maximum capacity" in condition(workload_of(api, "huge"), "QuotaReserved")[2])
    assert condition(workload_of(api, "huge"), "QuotaReserved") == (
        "False",
        "Pending",
        "couldn't assign flavors to pod set main: insufficient quota for nvidia.com/gpu in flavor h100, previously "
        "considered podsets requests (0) + current podset request (32) > maximum capacity (24)",
    )


def test_what_was_lent_is_taken_back(api: Api) -> None:
    api.create(stock.job("borrows", "lq-b", gpus=8, pods=3))
    wait_for(api, "borrows", "PodsReady")
    queue = api.get(f"{CLUSTER_QUEUES}/cq-b")
    until(lambda: api.get(f"{CLUSTER_QUEUES}/cq-b")["status"]["admittedWorkloads"] == 1)
    queue = api.get(f"{CLUSTER_QUEUES}/cq-b")["status"]
    gpus = [line for line in queue["flavorsUsage"][0]["resources"] if line["name"] == stock.GPU]
    assert gpus == [{"name": stock.GPU, "total": "24", "borrowed": "16"}]
    api.create(stock.job("owner", "lq-a", gpus=8))
    wait_for(api, "owner", "PodsReady")
    evicted = wait_for(api, "borrows", "Evicted")
    assert evicted[0] == "Preempted"
    assert evicted[1].startswith("Preempted to accommodate a workload (UID: ")
    assert (
        "due to reclamation within the cohort; preemptor path: /research/cq-a; preemptee path: /research/cq-b"
        in (evicted[1])
    )
    assert wait_for(api, "borrows", "Admitted", "False") == ("NoReservation", "The workload has no reservation")
    until(lambda: "EvictedDueToPreempted" in [reason for reason, _ in said(api, "borrows")])
    until(lambda: api.get(f"{JOBS}/borrows")["spec"]["suspend"])


def test_a_deactivated_workload_gives_its_quota_back_and_runs_again(api: Api) -> None:
    api.create(stock.job("stopped", "lq-a", gpus=8))
    wait_for(api, "stopped", "PodsReady")
    path = f"{WORKLOADS}/{workload_of(api, 'stopped')['metadata']['name']}"
    api.patch(path, {"spec": {"active": False}})
    assert wait_for(api, "stopped", "Evicted") == ("Deactivated", "The workload is deactivated")
    wait_for(api, "stopped", "QuotaReserved", "False")
    api.patch(path, {"spec": {"active": True}})
    wait_for(api, "stopped", "PodsReady")
    assert wait_for(api, "stopped", "Requeued")[0] == "Reactivated"


def test_a_drained_queue_evicts_and_takes_back(api: Api) -> None:
    api.create(stock.job("drained", "lq-a", gpus=8))
    wait_for(api, "drained", "PodsReady")
    queue = f"{CLUSTER_QUEUES}/cq-a"
    api.patch(queue, {"spec": {"stopPolicy": "HoldAndDrain"}})
    assert wait_for(api, "drained", "Evicted") == ("ClusterQueueStopped", "The ClusterQueue is stopped")
    wait_for(api, "drained", "QuotaReserved", "False")
    api.patch(queue, {"spec": {"stopPolicy": "None"}})
    wait_for(api, "drained", "PodsReady")


def test_a_waiting_job_moves_to_another_queue_and_class(api: Api) -> None:
    api.create(stock.job("blocks", "lq-a", gpus=8, pods=3))
    wait_for(api, "blocks", "PodsReady")
    api.create(stock.job("moves", "lq-b", gpus=8, pods=2))
    until(lambda: condition(workload_of(api, "moves"), "QuotaReserved")[0] == "False")
    labels = {"kueue.x-k8s.io/queue-name": "lq-a", "kueue.x-k8s.io/priority-class": "high"}
    api.patch(f"{JOBS}/moves", {"metadata": {"labels": labels}})
    until(lambda: workload_of(api, "moves")["spec"]["queueName"] == "lq-a")
    until(lambda: workload_of(api, "moves")["spec"]["priority"] == 1000)


def test_a_job_that_is_deleted_while_it_is_admitted_does_not_block_the_queue(api: Api) -> None:
    api.create(stock.job("victim", "lq-a", gpus=8, pods=2, priority_class="low"))
    wait_for(api, "victim", "PodsReady")
    api.create(stock.job("preemptor", "lq-a", gpus=8, pods=2, priority_class="high"))
    wait_for(api, "preemptor", "PodsReady")
    # The quota of the preemptor is free before the victim, which is next, is known to be gone.
    stock.sweep(api, "team-a")
    api.create(stock.job("next", "lq-a", gpus=8))
    wait_for(api, "next", "PodsReady")
