"""The schedulers' texts, read back: those of the real Kueue, and those of kube-scheduler."""

import gzip
import json
from collections import Counter

import pytest

from gpuconsole.insight.node_texts import read_nodes
from gpuconsole.insight.reasons import Code, Reason, code_of, dominant, read_kueue
from gpuconsole.model.quantity import GPU
from tests.shared import CONFORMANCE, needs_conformance

HEAD = "couldn't assign flavors to pod set main: "
SHORT = "insufficient unused quota for nvidia.com/gpu in flavor {}, {} more needed"
MOST = (
    "insufficient quota for nvidia.com/gpu in flavor {}, previously considered podsets requests (8) + "
    "current podset request (64) > maximum capacity (48)"
)
TAINT = "untolerated taint {nvidia.com/gpu present NoSchedule <nil>} in flavor spot"
AFFINITY = "flavor h100 doesn't match node affinity"
UNCOVERED = "resource amd.com/gpu unavailable in ClusterQueue"

TEXTS: dict[str, tuple[str, tuple[Reason, ...]]] = {
    "too little unused quota": (
        HEAD + SHORT.format("a100", 4),
        (
            Reason(
                code=Code.QUOTA,
                text=SHORT.format("a100", 4),
                pod_set="main",
                flavor="a100",
                resource=GPU,
                short=4,
            ),
        ),
    ),
    "quantities are read in their units": (
        HEAD + "insufficient unused quota for cpu in flavor c, 1500m more needed, "
        "insufficient unused quota for memory in flavor c, 16Gi more needed",
        (
            Reason(
                code=Code.QUOTA,
                text="insufficient unused quota for cpu in flavor c, 1500m more needed",
                pod_set="main",
                flavor="c",
                resource="cpu",
                short=1500,
            ),
            Reason(
                code=Code.QUOTA,
                text="insufficient unused quota for memory in flavor c, 16Gi more needed",
                pod_set="main",
                flavor="c",
                resource="memory",
                short=16 * 1024**3,
            ),
        ),
    ),
    "more than there could ever be": (
        HEAD + MOST.format("a100"),
        (
            Reason(
                code=Code.EXCEEDS_MAX,
                text=MOST.format("a100"),
                pod_set="main",
                flavor="a100",
                resource=GPU,
                assumed=8,
                request=64,
                capacity=48,
            ),
        ),
    ),
    "a taint, an affinity, and a resource that nobody covers": (
        HEAD + ", ".join((AFFINITY, UNCOVERED, TAINT)),
        (
            Reason(code=Code.FLAVOR_MISMATCH, text=AFFINITY, pod_set="main", flavor="h100"),
            Reason(code=Code.FLAVOR_MISMATCH, text=UNCOVERED, pod_set="main", resource="amd.com/gpu"),
            Reason(code=Code.FLAVOR_MISMATCH, text=TAINT, pod_set="main", flavor="spot", name="nvidia.com/gpu"),
        ),
    ),
    "a taint without a value leaves two spaces": (
        HEAD + "untolerated taint {dedicated  NoExecute <nil>} in flavor f",
        (
            Reason(
                code=Code.FLAVOR_MISMATCH,
                text="untolerated taint {dedicated  NoExecute <nil>} in flavor f",
                pod_set="main",
                flavor="f",
                name="dedicated",
            ),
        ),
    ),
    "two pod sets, and victims that have to end": (
        "couldn't assign flavors to pod set a: " + SHORT.format("f", 1) + "; couldn't assign flavors to pod set b: "
        'topology "default" allows to fit only 5 out of 6 pod(s). Pending the preemption of 3 workload(s)',
        (
            Reason(code=Code.QUOTA, text=SHORT.format("f", 1), pod_set="a", flavor="f", resource=GPU, short=1),
            Reason(
                code=Code.TOPOLOGY,
                text='topology "default" allows to fit only 5 out of 6 pod(s)',
                pod_set="b",
                name="default",
            ),
            Reason(code=Code.WAITING_FOR_VICTIMS, text="Pending the preemption of 3 workload(s)", count=3),
        ),
    ),
    "an unknown text is not guessed at": (
        "the moon is in the wrong phase",
        (Reason(code=Code.OTHER, text="the moon is in the wrong phase"),),
    ),
    "an unknown reason inside a known text": (
        HEAD + "variant is not allowed",
        (Reason(code=Code.OTHER, text="variant is not allowed", pod_set="main"),),
    ),
}


@pytest.mark.parametrize(("text", "want"), TEXTS.values(), ids=TEXTS.keys())
def test_kueues_text_is_read_into_reasons(text: str, want: tuple[Reason, ...]) -> None:
    assert read_kueue(text) == want


OVERLAPS = "Workload has overlapping preemption targets with another workload"
CODES = {
    "ClusterQueue cq is inactive": Code.QUEUE_INACTIVE,
    "ClusterQueue cq not found": Code.QUEUE_MISSING,
    "ClusterQueue cq doesn't exist": Code.QUEUE_MISSING,
    "ClusterQueue cq is stopped": Code.QUEUE_STOPPED,
    "LocalQueue lq doesn't exist": Code.QUEUE_MISSING,
    "LocalQueue lq is stopped": Code.QUEUE_STOPPED,
    "LocalQueue lq is terminating or missing": Code.QUEUE_MISSING,
    "workload namespace doesn't match ClusterQueue selector": Code.NAMESPACE,
    "The workload is deactivated": Code.DEACTIVATED,
    "The workload is deactivated due to exceeding the maximum execution time": Code.DEACTIVATED,
    "Preempted to accommodate a workload (UID: a-1, JobUID: UNKNOWN) due to prioritization in the ClusterQueue; "
    "preemptor path: /c/q; preemptee path: /c/q": Code.EVICTED,
    "Exceeded the PodsReady timeout ns/w": Code.EVICTED,
    'Evicted due to AdmissionCheck in Retry state: "capacity" (none left)': Code.EVICTED,
    "Workload was evicted as there was no replacement for unhealthy node(s): n1": Code.EVICTED,
    "The ClusterQueue is stopped": Code.QUEUE_STOPPED,
    "Workload is pending evaluation in the scheduling queue": Code.QUEUED,
    "Workload no longer fits after processing another workload": Code.CONTENTION,
    OVERLAPS: Code.CONTENTION,
    f"{OVERLAPS}, but will fit after these preemptions complete": Code.WAITING_FOR_VICTIMS,
    "Admission is gated by: my-gate": Code.GATED,
    "resources validation failed: requests must not exceed its limits": Code.INVALID,
    "resources didn't satisfy LimitRange constraints: too much": Code.INVALID,
    'workload namespace "ml" does not exist: namespaces "ml" not found': Code.NAMESPACE,
    "The workload has failed admission checks": Code.CHECKS,
    "waiting for all admitted workloads to be in PodsReady condition": Code.PODS_READY,
    "Bypassed scheduling evaluation because an equivalent workload recently failed": Code.PARKED,
    HEAD + SHORT.format("f", 4): Code.QUOTA,
    HEAD + SHORT.format("f", 4) + ". Pending the preemption of 1 workload(s)": Code.WAITING_FOR_VICTIMS,
    HEAD + SHORT.format("f", 4) + ". Preempting 2 workload(s) failed, will retry.": Code.CONTENTION,
    HEAD + MOST.format("f"): Code.EXCEEDS_MAX,
    HEAD + TAINT: Code.FLAVOR_MISMATCH,
    HEAD + 'topology "t" doesn\'t allow to fit any of 4 pod(s)': Code.TOPOLOGY,
    HEAD + "no topology domains at level: cloud/rack": Code.TOPOLOGY,
    "": Code.OTHER,
}


@pytest.mark.parametrize(("text", "want"), CODES.items())
def test_each_text_has_one_code(text: str, want: Code) -> None:
    assert code_of(text) is want


DOMINANT = {
    "one flavor could do, so it is a matter of quota": (
        f"{MOST.format('small')}, {SHORT.format('big', 2)}",
        {},
        Code.QUOTA,
    ),
    "no flavor suits but one that is too small": (f"{MOST.format('small')}, {TAINT}", {}, Code.EXCEEDS_MAX),
    "a flavor is as bad as its worst resource": (
        f"{SHORT.format('f', 2)}, insufficient quota for cpu in flavor f, previously considered podsets requests (0) + "
        "current podset request (9) > maximum capacity (4)",
        {},
        Code.EXCEEDS_MAX,
    ),
    "a workload is as bad as its worst resource group": (
        f"{MOST.format('gpu')}, insufficient unused quota for cpu in flavor small-cpu, 4 more needed",
        {"gpu": "0", "small-cpu": "1"},
        Code.EXCEEDS_MAX,
    ),
    "a resource that nobody covers never comes": (f"{UNCOVERED}, {SHORT.format('f', 2)}", {}, Code.FLAVOR_MISMATCH),
}


@pytest.mark.parametrize(("text", "groups", "want"), DOMINANT.values(), ids=DOMINANT.keys())
def test_the_dominant_reason_follows_kueues_severity(text: str, groups: dict[str, str], want: Code) -> None:
    assert dominant(read_kueue(HEAD + text), groups) is want


def test_the_worst_pod_set_decides() -> None:
    text = f"{HEAD}{SHORT.format('f', 1)}; couldn't assign flavors to pod set side: {TAINT}"
    assert code_of(text) is Code.FLAVOR_MISMATCH


@needs_conformance
def test_every_text_of_the_real_kueue_is_read_without_a_rest() -> None:
    assert CONFORMANCE is not None
    unread: Counter[str] = Counter()
    texts: set[str] = set()
    for path in sorted((CONFORMANCE / "scenarios").glob("*.expected.jsonl.gz")):
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            for line in lines:
                for cycle in json.loads(line)["cycles"]:
                    texts.update(entry["message"] for entry in cycle.get("pending", ()))
    for text in texts:
        reasons = read_kueue(text)
        if any(reason.code is Code.OTHER for reason in reasons):
            unread[text] += 1

    assert len(texts) > 1000
    assert unread == {}


NODES = {
    "GPUs are missing and a taint keeps it away": (
        "0/3 nodes are available: 1 Insufficient nvidia.com/gpu, "
        "2 node(s) had untolerated taint {nvidia.com/gpu: present}. "
        "preemption: 0/3 nodes are available: 3 Preemption is not helpful for scheduling.",
        [(2, "", "nvidia.com/gpu: present"), (1, GPU, "")],
    ),
    "the last reason ends with a full stop": (
        "0/1 nodes are available: 1 Insufficient nvidia.com/mig-1g.10gb.",
        [(1, "nvidia.com/mig-1g.10gb", "")],
    ),
    "nodes that it does not select come last": (
        "0/5 nodes are available: 2 node(s) were unschedulable, 3 node(s) didn't match Pod's node affinity/selector.",
        [(2, "", ""), (3, "", "")],
    ),
    "a gang's text holds the reason of its next pod": (
        "gang team/train waits whole: 12 of 16 pods fit; 0/4 nodes are available: 4 Insufficient nvidia.com/gpu.",
        [(4, GPU, "")],
    ),
    "no text at all": ("", []),
}


@pytest.mark.parametrize(("text", "want"), NODES.values(), ids=NODES.keys())
def test_kube_schedulers_text_is_read_by_nodes(text: str, want: list[tuple[int, str, str]]) -> None:
    assert [(reason.count, reason.resource, reason.name) for reason in read_nodes(text)] == want


def test_an_unknown_text_about_nodes_stays_whole() -> None:
    assert read_nodes("something else") == (Reason(code=Code.OTHER, text="something else"),)
    odd = "0/2 nodes are available: 2 node(s) had a bad day."
    assert read_nodes(odd) == (Reason(code=Code.NODES, text=odd),)


OLD: dict[str, Code] = {
    # Kueue 0.6 to 0.9
    HEAD + "insufficient unused quota in cohort for nvidia.com/gpu in flavor a100, 4 more needed": Code.QUOTA,
    HEAD + "borrowing limit for nvidia.com/gpu in flavor a100 exceeded": Code.QUOTA,
    HEAD + "insufficient quota for nvidia.com/gpu in flavor a100 in ClusterQueue": Code.EXCEEDS_MAX,
    "Workload namespace doesn't match ClusterQueue selector": Code.NAMESPACE,
    'Could not obtain workload namespace: namespaces "x" not found': Code.NAMESPACE,
    "other workloads in the cohort were prioritized": Code.CONTENTION,
    "Workload skipped because its premption calculations were invalidated by another workload": Code.CONTENTION,
    "Preempted to accommodate a higher priority Workload": Code.EVICTED,
    "Preempted by another workload in the ClusterQueue": Code.EVICTED,
    "Preempted to accommodate a workload (UID: 7) due to reclamation within the cohort": Code.EVICTED,
    "At least one admission check is false": Code.EVICTED,
    "The workload has no reservation": Code.QUEUED,
    "The workload has not all checks ready": Code.CHECKS,
    "Waiting for all admitted workloads to be in the PodsReady condition": Code.PODS_READY,
    "ClusterQueue q not found": Code.QUEUE_MISSING,
    # Kueue 0.10 to 0.14
    HEAD
    + "insufficient quota for nvidia.com/gpu in flavor a100, request > maximum capacity (64 > 48)": Code.EXCEEDS_MAX,
    HEAD + "could not assign b flavor since the original workload is assigned: a": Code.FLAVOR_MISMATCH,
    HEAD + "no requested topology level: rack": Code.TOPOLOGY,
    "failed to assign flavors to pod set main: no flavor assigned": Code.TOPOLOGY,
    "failed to assign flavors to pod set main: workload requires Topology, but there is no TAS cache information "
    "for the assigned flavor": Code.TOPOLOGY,
    "Deactivating workload because AdmissionCheck for c was Rejected: no": Code.DEACTIVATED,
    # Kueue 0.15 to 0.19
    "Workload was evicted as there was no replacement for a failed node: n1": Code.EVICTED,
    HEAD + SHORT.format("a100", 4) + ". Pending the migration of 1 workload(s)": Code.WAITING_FOR_VICTIMS,
    "Target flavor is below LastAcceptableFlavorName": Code.FLAVOR_MISMATCH,
    "A more favorable variant is already admitted": Code.CONTENTION,
}


@pytest.mark.parametrize(("text", "want"), OLD.items(), ids=OLD)
def test_older_and_newer_releases_are_read_to_the_same_codes(text: str, want: Code) -> None:
    assert code_of(text) is want


def test_what_an_older_release_says_of_amounts_is_read_too() -> None:
    (most,) = read_kueue(HEAD + "insufficient quota for memory in flavor c, request > maximum capacity (4Gi > 1Gi)")
    assert (most.flavor, most.resource, most.request, most.capacity) == ("c", "memory", 4 << 30, 1 << 30)
    (cohort,) = read_kueue(HEAD + "insufficient unused quota in cohort for cpu in flavor c, 1500m more needed")
    assert (cohort.flavor, cohort.resource, cohort.short) == ("c", "cpu", 1500)


RULED_OUT: dict[str, int] = {
    "1 node(s) had taint {a: b}, that the pod didn't tolerate": 1,
    "2 node(s) didn't match node selector": 2,
    "2 node(s) didn't match Pod's node affinity": 2,
    "3 node(s) didn't match pod anti-affinity rules": 3,
    "3 node(s) didn't satisfy existing pods anti-affinity rules": 3,
    "4 node(s) had volume node affinity conflict": 4,
    "5 node(s) didn't find available persistent volumes to bind": 5,
    "6 node(s) didn't have free ports for the requested pod ports": 6,
    "7 cannot allocate all claims": 7,
    "8 node(s) resource fit failed": 8,
}


@pytest.mark.parametrize(("text", "count"), RULED_OUT.items(), ids=RULED_OUT)
def test_what_rules_nodes_out_is_read_in_every_wording(text: str, count: int) -> None:
    (reason,) = read_nodes(f"0/9 nodes are available: {text}.")
    assert (reason.code, reason.text, reason.count) == (Code.NODES, text, count)
