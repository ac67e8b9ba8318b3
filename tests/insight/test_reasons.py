"""The schedulers' texts, read back: those of the real Kueue, and those of kube-scheduler."""

import gzip
import json
from collections import Counter

import pytest

from gpuconsole.insight.pending.reasons import (
    FlavorGroups,
    ParsedReason,
    PendingReason,
    code_of,
    dominant,
    read_kueue,
    read_nodes,
)
from gpuconsole.model.resources import GPU
from tests.support.shared_material import CONFORMANCE, needs_conformance

HEAD = "couldn't assign flavors to pod set main: "
SHORT = "insufficient unused quota for nvidia.com/gpu in flavor {}, {} more needed"
MOST = (
    "insufficient quota for nvidia.com/gpu in flavor {}, previously considered podsets requests (8) + "
    "current podset request (64) > maximum capacity (48)"
)
TAINT = "untolerated taint {nvidia.com/gpu present NoSchedule <nil>} in flavor spot"
AFFINITY = "flavor h100 doesn't match node affinity"
UNCOVERED = "resource amd.com/gpu unavailable in ClusterQueue"

TEXTS: dict[str, tuple[str, tuple[ParsedReason, ...]]] = {
    "too little unused quota": (
        HEAD + SHORT.format("a100", 4),
        (
            ParsedReason(
                code=PendingReason.QUOTA,
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
            ParsedReason(
                code=PendingReason.QUOTA,
                text="insufficient unused quota for cpu in flavor c, 1500m more needed",
                pod_set="main",
                flavor="c",
                resource="cpu",
                short=1500,
            ),
            ParsedReason(
                code=PendingReason.QUOTA,
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
            ParsedReason(
                code=PendingReason.EXCEEDS_MAX,
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
            ParsedReason(code=PendingReason.FLAVOR_MISMATCH, text=AFFINITY, pod_set="main", flavor="h100"),
            ParsedReason(code=PendingReason.FLAVOR_MISMATCH, text=UNCOVERED, pod_set="main", resource="amd.com/gpu"),
            ParsedReason(
                code=PendingReason.FLAVOR_MISMATCH, text=TAINT, pod_set="main", flavor="spot", name="nvidia.com/gpu"
            ),
        ),
    ),
    "a taint without a value leaves two spaces": (
        HEAD + "untolerated taint {dedicated  NoExecute <nil>} in flavor f",
        (
            ParsedReason(
                code=PendingReason.FLAVOR_MISMATCH,
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
            ParsedReason(
                code=PendingReason.QUOTA, text=SHORT.format("f", 1), pod_set="a", flavor="f", resource=GPU, short=1
            ),
            ParsedReason(
                code=PendingReason.TOPOLOGY,
                text='topology "default" allows to fit only 5 out of 6 pod(s)',
                pod_set="b",
                name="default",
            ),
            ParsedReason(
                code=PendingReason.WAITING_FOR_VICTIMS, text="Pending the preemption of 3 workload(s)", count=3
            ),
        ),
    ),
    "an unknown text is not guessed at": (
        "the moon is in the wrong phase",
        (ParsedReason(code=PendingReason.OTHER, text="the moon is in the wrong phase"),),
    ),
    "an unknown reason inside a known text": (
        HEAD + "variant is not allowed",
        (ParsedReason(code=PendingReason.OTHER, text="variant is not allowed", pod_set="main"),),
    ),
}


@pytest.mark.parametrize(("text", "want"), TEXTS.values(), ids=TEXTS.keys())
def test_kueues_text_is_read_into_reasons(text: str, want: tuple[ParsedReason, ...]) -> None:
    assert read_kueue(text) == want


OVERLAPS = "Workload has overlapping preemption targets with another workload"
CODES = {
    "ClusterQueue cq is inactive": PendingReason.QUEUE_INACTIVE,
    "ClusterQueue cq not found": PendingReason.QUEUE_MISSING,
    "ClusterQueue cq doesn't exist": PendingReason.QUEUE_MISSING,
    "ClusterQueue cq is stopped": PendingReason.QUEUE_STOPPED,
    "LocalQueue lq doesn't exist": PendingReason.QUEUE_MISSING,
    "LocalQueue lq is stopped": PendingReason.QUEUE_STOPPED,
    "LocalQueue lq is terminating or missing": PendingReason.QUEUE_MISSING,
    "workload namespace doesn't match ClusterQueue selector": PendingReason.NAMESPACE,
    "The workload is deactivated": PendingReason.DEACTIVATED,
    "The workload is deactivated due to exceeding the maximum execution time": PendingReason.DEACTIVATED,
    "Preempted to accommodate a workload (UID: a-1, JobUID: UNKNOWN) due to prioritization in the ClusterQueue; "
    "preemptor path: /c/q; preemptee path: /c/q": PendingReason.EVICTED,
    "Exceeded the PodsReady timeout ns/w": PendingReason.EVICTED,
    'Evicted due to AdmissionCheck in Retry state: "capacity" (none left)': PendingReason.EVICTED,
    "Workload was evicted as there was no replacement for unhealthy node(s): n1": PendingReason.EVICTED,
    "The ClusterQueue is stopped": PendingReason.QUEUE_STOPPED,
    "Workload is pending evaluation in the scheduling queue": PendingReason.QUEUED,
    "Workload no longer fits after processing another workload": PendingReason.CONTENTION,
    OVERLAPS: PendingReason.CONTENTION,
    f"{OVERLAPS}, but will fit after these preemptions complete": PendingReason.WAITING_FOR_VICTIMS,
    "Admission is gated by: my-gate": PendingReason.GATED,
    "resources validation failed: requests must not exceed its limits": PendingReason.INVALID,
    "resources didn't satisfy LimitRange constraints: too much": PendingReason.INVALID,
    'workload namespace "ml" does not exist: namespaces "ml" not found': PendingReason.NAMESPACE,
    "The workload has failed admission checks": PendingReason.CHECKS,
    "waiting for all admitted workloads to be in PodsReady condition": PendingReason.PODS_READY,
    "Bypassed scheduling evaluation because an equivalent workload recently failed": PendingReason.INADMISSIBLE,
    HEAD + SHORT.format("f", 4): PendingReason.QUOTA,
    HEAD + SHORT.format("f", 4) + ". Pending the preemption of 1 workload(s)": PendingReason.WAITING_FOR_VICTIMS,
    HEAD + SHORT.format("f", 4) + ". Preempting 2 workload(s) failed, will retry.": PendingReason.CONTENTION,
    HEAD + MOST.format("f"): PendingReason.EXCEEDS_MAX,
    HEAD + TAINT: PendingReason.FLAVOR_MISMATCH,
    HEAD + 'topology "t" doesn\'t allow to fit any of 4 pod(s)': PendingReason.TOPOLOGY,
    HEAD + "no topology domains at level: cloud/rack": PendingReason.TOPOLOGY,
    "": PendingReason.OTHER,
}


@pytest.mark.parametrize(("text", "want"), CODES.items())
def test_each_text_has_one_code(text: str, want: PendingReason) -> None:
    assert code_of(text) is want


DOMINANT = {
    "one flavor could do, so it is a matter of quota": (
        f"{MOST.format('small')}, {SHORT.format('big', 2)}",
        (),
        PendingReason.QUOTA,
    ),
    "no flavor suits but one that is too small": (f"{MOST.format('small')}, {TAINT}", (), PendingReason.EXCEEDS_MAX),
    "a flavor is as bad as its worst resource": (
        f"{SHORT.format('f', 2)}, insufficient quota for cpu in flavor f, previously considered podsets requests (0) + "
        "current podset request (9) > maximum capacity (4)",
        (),
        PendingReason.EXCEEDS_MAX,
    ),
    "a workload is as bad as its worst resource group": (
        f"{MOST.format('gpu')}, insufficient unused quota for cpu in flavor small-cpu, 4 more needed",
        (("gpu",), ("small-cpu",)),
        PendingReason.EXCEEDS_MAX,
    ),
    "a resource that nobody covers never comes": (
        f"{UNCOVERED}, {SHORT.format('f', 2)}",
        (),
        PendingReason.FLAVOR_MISMATCH,
    ),
}


@pytest.mark.parametrize(("text", "groups", "want"), DOMINANT.values(), ids=DOMINANT.keys())
def test_the_dominant_reason_follows_kueues_severity(text: str, groups: FlavorGroups, want: PendingReason) -> None:
    assert dominant(read_kueue(HEAD + text), groups) is want


def test_the_worst_pod_set_decides() -> None:
    text = f"{HEAD}{SHORT.format('f', 1)}; couldn't assign flavors to pod set side: {TAINT}"
    assert code_of(text) is PendingReason.FLAVOR_MISMATCH


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
        if any(reason.code is PendingReason.OTHER for reason in reasons):
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
        "gang team/train not scheduled: 12 of 16 pods fit; 0/4 nodes are available: 4 Insufficient nvidia.com/gpu.",
        [(4, GPU, "")],
    ),
    "no text at all": ("", []),
}


@pytest.mark.parametrize(("text", "want"), NODES.values(), ids=NODES.keys())
def test_kube_schedulers_text_is_read_by_nodes(text: str, want: list[tuple[int, str, str]]) -> None:
    assert [(reason.count, reason.resource, reason.name) for reason in read_nodes(text)] == want


def test_an_unknown_text_about_nodes_stays_whole() -> None:
    assert read_nodes("something else") == (ParsedReason(code=PendingReason.OTHER, text="something else"),)
    odd = "0/2 nodes are available: 2 node(s) had a bad day."
    assert read_nodes(odd) == (ParsedReason(code=PendingReason.NODES, text=odd),)


OLD: dict[str, PendingReason] = {
    # Kueue 0.6 to 0.9
    HEAD + "insufficient unused quota in cohort for nvidia.com/gpu in flavor a100, 4 more needed": PendingReason.QUOTA,
    HEAD + "borrowing limit for nvidia.com/gpu in flavor a100 exceeded": PendingReason.QUOTA,
    HEAD + "insufficient quota for nvidia.com/gpu in flavor a100 in ClusterQueue": PendingReason.EXCEEDS_MAX,
    "Workload namespace doesn't match ClusterQueue selector": PendingReason.NAMESPACE,
    'Could not obtain workload namespace: namespaces "x" not found': PendingReason.NAMESPACE,
    "other workloads in the cohort were prioritized": PendingReason.CONTENTION,
    "Workload skipped because its premption calculations were invalidated by another workload": (
        PendingReason.CONTENTION
    ),
    "Preempted to accommodate a higher priority Workload": PendingReason.EVICTED,
    "Preempted by another workload in the ClusterQueue": PendingReason.EVICTED,
    "Preempted to accommodate a workload (UID: 7) due to reclamation within the cohort": PendingReason.EVICTED,
    "At least one admission check is false": PendingReason.EVICTED,
    "The workload has no reservation": PendingReason.QUEUED,
    "The workload has not all checks ready": PendingReason.CHECKS,
    "Waiting for all admitted workloads to be in the PodsReady condition": PendingReason.PODS_READY,
    "ClusterQueue q not found": PendingReason.QUEUE_MISSING,
    # Kueue 0.10 to 0.14
    HEAD + "insufficient quota for nvidia.com/gpu in flavor a100, request > maximum capacity (64 > 48)": (
        PendingReason.EXCEEDS_MAX
    ),
    HEAD + "could not assign b flavor since the original workload is assigned: a": PendingReason.FLAVOR_MISMATCH,
    HEAD + "no requested topology level: rack": PendingReason.TOPOLOGY,
    "failed to assign flavors to pod set main: no flavor assigned": PendingReason.TOPOLOGY,
    "failed to assign flavors to pod set main: workload requires Topology, but there is no TAS cache information "
    "for the assigned flavor": PendingReason.TOPOLOGY,
    "Deactivating workload because AdmissionCheck for c was Rejected: no": PendingReason.DEACTIVATED,
    # Kueue 0.15 to 0.19
    "Workload was evicted as there was no replacement for a failed node: n1": PendingReason.EVICTED,
    HEAD + SHORT.format("a100", 4) + ". Pending the migration of 1 workload(s)": PendingReason.WAITING_FOR_VICTIMS,
    "Target flavor is below LastAcceptableFlavorName": PendingReason.FLAVOR_MISMATCH,
    "A more favorable variant is already admitted": PendingReason.CONTENTION,
}


@pytest.mark.parametrize(("text", "want"), OLD.items(), ids=OLD)
def test_older_and_newer_releases_are_read_to_the_same_codes(text: str, want: PendingReason) -> None:
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
    assert (reason.code, reason.text, reason.count) == (PendingReason.NODES, text, count)
