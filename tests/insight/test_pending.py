"""Why it waits: the dominant reason, the arithmetic and the remedies, for a workload, a job or a pod."""

import pytest
from msgspec.structs import replace

from gpuconsole.insight.index.queues import Position
from gpuconsole.insight.pending.pending import PendingExplanation, explain
from gpuconsole.insight.pending.reasons import PendingReason
from gpuconsole.insight.pending.shortage import KUBE_SCHEDULER, KUEUE, Holder, Remedy
from gpuconsole.insight.pending.why import rehearsal_on, unblocking, why
from gpuconsole.model.clock import HOUR, MINUTE
from gpuconsole.model.cluster import Pod
from gpuconsole.model.job import Job
from gpuconsole.model.labels import LabelSelector
from gpuconsole.model.objects import TABLES, Object
from gpuconsole.model.pod_template import Container, PodSet, PodTemplate, TopologyRequest
from gpuconsole.model.queues import (
    CheckRule,
    ClusterQueue,
    ClusterQueuePreemption,
    Cohort,
    LocalQueue,
    Quota,
    ResourceFlavor,
    StopPolicy,
)
from gpuconsole.model.resources import GPU
from gpuconsole.model.workloads import (
    Admission,
    CheckState,
    Condition,
    EvictionCount,
    PodSetAssignment,
    RequeueState,
    SchedulingStats,
    TopologyDomain,
    Workload,
)
from gpuconsole.scheduling.kueue.config import DEFAULT
from gpuconsole.scheduling.kueue.podset import TOPOLOGY_GATE
from tests.support.snapshots import (
    A100,
    ORG,
    ORG_QUEUES,
    START,
    cluster_queue,
    group,
    node,
    pod,
    running,
    unseen,
    waiting,
    world,
)

HEAD = "couldn't assign flavors to pod set main: "


def short(amount: int) -> str:
    return f"{HEAD}insufficient unused quota for nvidia.com/gpu in flavor a100, {amount} more needed"


def marks(answer: PendingExplanation) -> list[str]:
    return [f"{'✓' if remedy.works else '✗'} {remedy.text}" for remedy in answer.remedies]


def test_the_drawn_example_is_explained_whole() -> None:
    text = short(2)
    answer = explain(
        world([*ORG, waiting("rlhf-2", "research/lq", 6, text, minutes_ago=12, priority=500, inadmissible=True)]),
        "research/rlhf-2",
    )

    assert answer == PendingExplanation(
        subject="research/rlhf-2",
        code=PendingReason.QUOTA,
        headline="rlhf-2 needs 6 GPUs; cohort org-cohort has 4 GPUs of a100 available.",
        text=text,
        source=KUEUE,
        queue="cq-research",
        since=START - 12 * MINUTE,
        position=Position("research/rlhf-2", "cq-research", 1, 1, 1, 1, 0),
        inadmissible=True,
        lines=(
            "a100 nvidia.com/gpu: needs 6, available 4 · 2 more needed, limited by Cohort org-cohort",
            "  ClusterQueue cq-research: quota 8, used 12, unused 0, borrowing limit 8 → available 4",
            "  Cohort org-cohort: quota 24, used 20, unused 4 → available 4",
        ),
        holders=(
            Holder(workload="prod/serve", queue="cq-prod", priority=10_000, gpus=8, borrowed=0, ends=None),
            Holder(workload="research/rlhf", queue="cq-research", priority=500, gpus=6, borrowed=4, ends=None),
            Holder(workload="research/llm-ft", queue="cq-research", priority=500, gpus=4, borrowed=0, ends=None),
            Holder(workload="research/embed", queue="cq-research", priority=500, gpus=2, borrowed=0, ends=None),
        ),
        remedies=(
            Remedy(True, "research/embed ends (2 GPUs)"),
            Remedy(True, "research/llm-ft ends (4 GPUs)"),
            Remedy(True, "research/rlhf ends (6 GPUs)"),
            Remedy(True, "request 4 GPUs"),
            Remedy(False, "a higher borrowing limit: the cohort has no unused quota"),
            Remedy(True, "priority ≥ 501: preempts research/rlhf (2.0 GPU-hours lost)"),
        ),
    )


def test_what_is_its_own_and_what_the_cohort_has_are_not_one_number() -> None:
    """Four of its own are left, and two of the cohort's eight."""
    objects: list[Object] = [
        A100,
        cluster_queue("q", "c", Quota(4)),
        cluster_queue("other", "c", Quota(8)),
        *(LocalQueue(namespace="ns", name=name, cluster_queue=name) for name in ("q", "other")),
        running("w", "ns/other", 6, "other"),
        waiting("new", "ns/q", 8, short(2)),
    ]
    assert explain(world(objects), "ns/new").headline == (
        "new needs 8 GPUs; q has 6 GPUs of a100 available (2 from cohort c)."
    )


def test_the_headline_names_no_flavor_where_several_are_short() -> None:
    flavors = (group({"a100": Quota(4), "h100": Quota(2)}),)
    objects: list[Object] = [
        A100,
        ResourceFlavor(name="h100"),
        cluster_queue("q", resource_groups=flavors),
        LocalQueue(namespace="ns", name="lq", cluster_queue="q"),
        waiting("new", "ns/lq", 8, f"{short(4)}, {short(6).partition(': ')[2].replace('a100', 'h100')}"),
    ]
    answer = explain(world(objects), "ns/new")
    assert answer.headline == "new needs 8 GPUs; q has 4 GPUs available."
    assert [line.partition(" ")[0] for line in answer.lines] == ["a100", "", "h100", ""]


def test_a_borrowing_limit_is_told_from_an_empty_cohort() -> None:
    objects: list[Object] = [
        A100,
        cluster_queue("q", "c", Quota(4, borrowing_limit=2), preemption=ClusterQueuePreemption()),
        cluster_queue("other", "c", Quota(20)),
        LocalQueue(namespace="ns", name="lq", cluster_queue="q"),
        running("w", "ns/lq", 5, "q", minutes_ago=30, priority=3),
        waiting("new", "ns/lq", 4, short(3), priority=5),
    ]
    answer = explain(world(objects), "ns/new")

    assert answer.headline == "new needs 4 GPUs; q has 1 GPU of a100 available within its borrowing limit."
    assert answer.lines == (
        "a100 nvidia.com/gpu: needs 4, available 1 · 3 more needed, limited by borrowingLimit of ClusterQueue q",
        "  ClusterQueue q: quota 4, used 5, unused 0, borrowing limit 2 → available 1",
        "  Cohort c: quota 24, used 5, unused 19 → available 19",
    )
    assert marks(answer) == [
        "✓ ns/w ends (5 GPUs)",
        "✓ request 1 GPU",
        "✓ raise the borrowingLimit of q by 3 GPUs",
        "✗ a higher priority: q does not preempt its own workloads (withinClusterQueue: Never)",
    ]


def gang(*gpus: int) -> Workload:
    sets = (
        PodSet(name=f"s{n}", template=PodTemplate(containers=(Container(requests={GPU: amount}),)))
        for n, amount in enumerate(gpus)
    )
    text = "; ".join(short(amount).replace("main", f"s{n}") for n, amount in enumerate(gpus[:2]))
    return replace(waiting("new", "ns/lq", 0, text), pod_sets=tuple(sets))


def test_what_several_pod_sets_lack_of_one_flavor_is_told_once_and_as_a_whole() -> None:
    objects: list[Object] = [
        A100,
        cluster_queue("q", "", Quota(8)),
        LocalQueue(namespace="ns", name="lq", cluster_queue="q"),
    ]
    answer = explain(world([*objects, running("w", "ns/lq", 7, "q"), gang(2, 4)]), "ns/new")
    assert answer.headline == "new needs 6 GPUs; q has 1 GPU of a100 available."
    assert answer.lines == (
        "a100 nvidia.com/gpu: needs 6, available 1 · 5 more needed, limited by ClusterQueue q",
        "  ClusterQueue q: quota 8, used 7, unused 1 → available 1",
    )

    answer = explain(world([*objects, running("w", "ns/lq", 7, "q"), gang(2, 4, 1)]), "ns/new")
    assert (
        answer.headline
        == "new needs 6 GPUs for its pod sets up to s1 (7 GPUs in total); q has 1 GPU of a100 available."
    )


def test_a_queue_without_a_cohort_and_a_holder_that_says_when_it_ends() -> None:
    job = Job(namespace="ns", name="w", duration=2 * HOUR, checkpoint_interval=20 * MINUTE)
    objects: list[Object] = [
        A100,
        cluster_queue("q", "", Quota(8)),
        LocalQueue(namespace="ns", name="lq", cluster_queue="q"),
        job,
        running("w", "ns/lq", 7, "q", minutes_ago=30, owner=job.key),
        waiting("new", "ns/lq", 4, short(3)),
    ]
    answer = explain(world(objects), "ns/new")

    assert answer.headline == "new needs 4 GPUs; q has 1 GPU of a100 available."
    assert answer.lines == (
        "a100 nvidia.com/gpu: needs 4, available 1 · 3 more needed, limited by ClusterQueue q",
        "  ClusterQueue q: quota 8, used 7, unused 1 → available 1",
    )
    assert answer.holders[0].ends == START + 90 * MINUTE
    # Half an hour of work, the last 10 minutes of it after a checkpoint, on 7 GPUs.
    assert marks(answer) == [
        "✓ ns/w ends (7 GPUs, ~09:30)",
        "✓ request 1 GPU",
        "✓ priority ≥ 1: preempts ns/w (1.2 GPU-hours lost)",
    ]


def test_a_text_that_time_overtook_is_not_repeated_as_the_truth() -> None:
    answer = explain(world([*ORG_QUEUES, waiting("w", "prod/lq", 6, short(2))]), "prod/w")

    assert answer.headline == "w needs 6 GPUs; available now: 16 GPUs of a100."
    assert marks(answer) == ["✓ quota is available now: Kueue retries it when something in its cohort tree changes"]


def stopped(key: str, policy: StopPolicy = StopPolicy.HOLD) -> list[Object]:
    """The queues of org-cohort with one of them stopped."""
    return [replace(thing, stop_policy=policy) if getattr(thing, "key", "") == key else thing for thing in ORG_QUEUES]


EXCEEDS = (
    "insufficient quota for nvidia.com/gpu in flavor a100, previously considered podsets requests (0) + "
    "current podset request (64) > maximum capacity (16)"
)
VICTIM = replace(
    running("rlhf", "research/lq", 6, "cq-research"),
    conditions=(
        Condition("QuotaReserved", True),
        Condition("Admitted", True),
        Condition("Evicted", True, "Preempted"),
        Condition(
            "Preempted",
            True,
            "InCohortReclamation",
            "Preempted to accommodate a workload (UID: serve-2, JobUID: UNKNOWN) due to reclamation",
        ),
    ),
)
MISMATCH = (
    f"{HEAD}flavor h100 doesn't match node affinity, resource amd.com/gpu unavailable in ClusterQueue, "
    "untolerated taint {nvidia.com/gpu present NoSchedule <nil>} in flavor a100"
)

CASES: dict[str, tuple[list[Object], Workload, PendingReason, str, list[str]]] = {
    "never fits": (
        [*ORG_QUEUES],
        waiting("w", "prod/lq", 64, HEAD + EXCEEDS),
        PendingReason.EXCEEDS_MAX,
        "w requests 64 GPUs; the maximum capacity of cq-prod is 16 GPUs of a100.",
        [
            "✗ waiting: it never fits",
            "✓ request at most 16 GPUs",
            "✓ raise the quota or the borrowing limit by 48 GPUs",
        ],
    ),
    "no flavor suits": (
        [*ORG_QUEUES],
        waiting("w", "prod/lq", 4, MISMATCH),
        PendingReason.FLAVOR_MISMATCH,
        "No flavor of cq-prod matches its pods.",
        [
            "✓ a node selector or affinity that matches flavor h100",
            "✓ add quota of amd.com/gpu to cq-prod, or do not request it",
            "✓ add a toleration for nvidia.com/gpu (flavor a100)",
        ],
    ),
    "its victims are on their way out, and named": (
        [*ORG_QUEUES, VICTIM],
        waiting("serve-2", "prod/lq", 8, short(4) + ". Pending the preemption of 1 workload(s)"),
        PendingReason.WAITING_FOR_VICTIMS,
        "Waiting for 1 preempted workload to terminate: research/rlhf.",
        [],
    ),
    "somebody was quicker": (
        [*ORG_QUEUES],
        waiting("w", "prod/lq", 8, "Workload no longer fits after processing another workload"),
        PendingReason.CONTENTION,
        "Another workload was processed earlier in the same scheduling cycle; Kueue retries at once.",
        [],
    ),
    "a queue without a selector admits nobody": (
        [
            A100,
            cluster_queue("shut", "", Quota(8), namespace_selector=None),
            LocalQueue(namespace="ns", name="lq", cluster_queue="shut"),
        ],
        waiting("w", "ns/lq", 8, "workload namespace doesn't match ClusterQueue selector"),
        PendingReason.NAMESPACE,
        "shut has no namespaceSelector, so it matches no namespace.",
        ["✓ set namespaceSelector: {} on shut to match all namespaces"],
    ),
    "a queue for other namespaces": (
        [
            A100,
            cluster_queue("team", "", Quota(8), namespace_selector=LabelSelector({"team": "a"})),
            LocalQueue(namespace="ns", name="lq", cluster_queue="team"),
        ],
        waiting("w", "ns/lq", 8, "workload namespace doesn't match ClusterQueue selector"),
        PendingReason.NAMESPACE,
        "The namespaceSelector of team does not match namespace ns.",
        ["✓ label the namespace so that the namespaceSelector of team matches it"],
    ),
    "a stopped queue outranks an older text about quota": (
        stopped("cq-prod"),
        waiting("w", "prod/lq", 64, HEAD + EXCEEDS),
        PendingReason.QUEUE_STOPPED,
        "cq-prod is stopped (Hold).",
        ["✓ resume cq-prod"],
    ),
    "the LocalQueue is stopped": (
        stopped("prod/lq", StopPolicy.HOLD_AND_DRAIN),
        waiting("w", "prod/lq", 4),
        PendingReason.QUEUE_STOPPED,
        "prod/lq is stopped (HoldAndDrain).",
        ["✓ resume prod/lq"],
    ),
    "the LocalQueue does not exist": (
        [*ORG_QUEUES],
        waiting("w", "prod/team-a-queue", 4, "LocalQueue team-a-queue doesn't exist"),
        PendingReason.QUEUE_MISSING,
        "LocalQueue team-a-queue does not exist in namespace prod.",
        ["✓ create it, or move the workload to another queue"],
    ),
    "the ClusterQueue does not exist": (
        [LocalQueue(namespace="ns", name="lq", cluster_queue="gone")],
        waiting("w", "ns/lq", 4),
        PendingReason.QUEUE_MISSING,
        "ClusterQueue gone does not exist.",
        ["✓ create it, or move the workload to another queue"],
    ),
    "the ClusterQueue was deleted after Kueue judged by it": (
        [LocalQueue(namespace="ns", name="lq", cluster_queue="gone")],
        waiting("w", "ns/lq", 4, HEAD + "insufficient unused quota for nvidia.com/gpu in flavor h100, 2 more needed"),
        PendingReason.QUEUE_MISSING,
        "ClusterQueue gone does not exist.",
        ["✓ create it, or move the workload to another queue"],
    ),
    "so was the LocalQueue": (
        [*ORG_QUEUES],
        waiting("w", "prod/gone", 4, HEAD + "insufficient unused quota for cpu in flavor h100, 2 more needed"),
        PendingReason.QUEUE_MISSING,
        "LocalQueue gone does not exist in namespace prod.",
        ["✓ create it, or move the workload to another queue"],
    ),
    "its cohorts make a circle, whatever Kueue wrote before": (
        [
            A100,
            cluster_queue("looped", "a", Quota(8)),
            Cohort(name="a", parent="b"),
            Cohort(name="b", parent="a"),
            LocalQueue(namespace="ns", name="lq", cluster_queue="looped"),
        ],
        waiting("w", "ns/lq", 4, HEAD + "insufficient unused quota for nvidia.com/gpu in flavor a100, 2 more needed"),
        PendingReason.QUEUE_INACTIVE,
        "looped admits no workload: cohort a is its own ancestor, or below one that is: nothing in it is admitted. "
        "Waiting does not help.",
        ["✓ change or remove the parent of one cohort in the cycle"],
    ),
    "the ClusterQueue is inactive, whatever Kueue wrote before": (
        [replace(queue, checks=(CheckRule("budget"),)) if queue.key == "cq-prod" else queue for queue in ORG_QUEUES],
        waiting("w", "prod/lq", 4, "workload namespace doesn't match ClusterQueue selector"),
        PendingReason.QUEUE_INACTIVE,
        "cq-prod is inactive (AdmissionCheckNotFound): "
        "Can't admit new workloads: references missing AdmissionCheck(s): budget.",
        ["✓ create the missing object, or remove it from the ClusterQueue"],
    ),
    "the ClusterQueue was inactive, and nobody tried again since": (
        [*ORG_QUEUES],
        waiting("w", "prod/lq", 4, "ClusterQueue cq-prod is inactive"),
        PendingReason.QUEUE_INACTIVE,
        "It can be admitted in cq-prod again: Kueue's message is out of date.",
        [],
    ),
    "it was stopped and resumed, and nobody tried again since": (
        [*ORG_QUEUES],
        waiting("w", "prod/lq", 4, "The ClusterQueue is stopped"),
        PendingReason.QUEUE_STOPPED,
        "It can be admitted in cq-prod again: Kueue's message is out of date.",
        [],
    ),
    "its LocalQueue is stopped and points nowhere": (
        [LocalQueue(namespace="ns", name="lq", cluster_queue="gone", stop_policy=StopPolicy.HOLD)],
        waiting("w", "ns/lq", 4),
        PendingReason.QUEUE_STOPPED,
        "ns/lq is stopped (Hold).",
        ["✓ resume ns/lq"],
    ),
    "it was stopped": (
        [*ORG_QUEUES],
        waiting("w", "prod/lq", 4, "The workload is deactivated", active=False),
        PendingReason.DEACTIVATED,
        "Deactivated (spec.active is false).",
        ["✓ resume it"],
    ),
    "who stopped it is told": (
        [*ORG_QUEUES],
        replace(
            waiting("w", "prod/lq", 4, "The workload is deactivated", active=False),
            conditions=(
                Condition(
                    "Evicted",
                    True,
                    "DeactivatedDueToAdmissionCheck",
                    'The workload is deactivated due to AdmissionCheck in Rejected state: "budget" (no)',
                ),
            ),
        ),
        PendingReason.DEACTIVATED,
        'Deactivated (spec.active is false): AdmissionCheck in Rejected state: "budget" (no).',
        ["✓ resume it"],
    ),
    "it waits out a back-off": (
        [*ORG_QUEUES],
        waiting(
            "w",
            "prod/lq",
            4,
            scheduling_stats=SchedulingStats((EvictionCount(reason="PodsReadyTimeout", count=3),)),
            requeue=RequeueState(3, START + 4 * MINUTE),
        ),
        PendingReason.BACKOFF,
        "Evicted 3 times; requeued in 4m (backoff).",
        [],
    ),
    "parked unseen with its look-alikes": (
        [*ORG_QUEUES],
        waiting("w", "prod/lq", 4, inadmissible=True),
        PendingReason.INADMISSIBLE,
        "Inadmissible, like equivalent workloads, until something in its cohort tree changes.",
        [],
    ),
    "evicted, and not tried since": (
        [*ORG_QUEUES, running("serve-2", "prod/lq", 8, "cq-prod")],
        waiting(
            "rlhf",
            "research/lq",
            6,
            "Preempted to accommodate a workload (UID: serve-2, JobUID: UNKNOWN) due to reclamation within the cohort; "
            "preemptor path: /org-cohort/cq-prod; preemptee path: /org-cohort/cq-research",
        ),
        PendingReason.EVICTED,
        "Preempted by prod/serve-2; requeued in cq-research.",
        [],
    ),
    "evicted by a timeout": (
        [*ORG_QUEUES],
        waiting("w", "prod/lq", 6, "Exceeded the PodsReady timeout prod/w"),
        PendingReason.EVICTED,
        "Evicted; requeued in cq-prod.",
        [],
    ),
    "not tried yet": (
        [*ORG_QUEUES],
        waiting("w", "prod/lq", 4),
        PendingReason.QUEUED,
        "Queued in cq-prod; Kueue has not tried to admit it yet.",
        [],
    ),
    "not allowed": (
        [*ORG_QUEUES],
        waiting("w", "prod/lq", 4, "resources didn't satisfy LimitRange constraints: cpu"),
        PendingReason.INVALID,
        "Its resource requests are invalid: waiting does not help.",
        ["✓ correct its resource requests and submit it again"],
    ),
    "unknown words are left to speak for themselves": (
        [*ORG_QUEUES],
        waiting("w", "prod/lq", 4, "something new in Kueue 0.25"),
        PendingReason.OTHER,
        "Pending in cq-prod; see Kueue's message for the reason.",
        [],
    ),
}


@pytest.mark.parametrize(("objects", "subject", "code", "headline", "remedies"), CASES.values(), ids=CASES.keys())
def test_each_reason_has_its_sentence_and_its_next_step(
    objects: list[Object], subject: Workload, code: PendingReason, headline: str, remedies: list[str]
) -> None:
    answer = explain(world([*objects, subject]), subject.key)

    assert (answer.code, answer.headline, marks(answer)) == (code, headline, remedies)


SHORT = HEAD + "insufficient unused quota for nvidia.com/gpu in flavor a100, 2 more needed"
UNSEEN: dict[str, tuple[type[Object], tuple[str, ...], str, PendingReason, str]] = {
    "the ClusterQueue": (
        ClusterQueue,
        (),
        SHORT,
        PendingReason.QUOTA,
        "Insufficient unused quota in flavor a100: 2 GPUs more needed.",
    ),
    "its LocalQueue": (
        LocalQueue,
        (),
        SHORT,
        PendingReason.QUOTA,
        "Insufficient unused quota in flavor a100: 2 GPUs more needed.",
    ),
    "LocalQueues but for another namespace": (
        LocalQueue,
        ("dev",),
        SHORT,
        PendingReason.QUOTA,
        "Insufficient unused quota in flavor a100: 2 GPUs more needed.",
    ),
    "who uses the quota": (
        Workload,
        ("prod",),
        SHORT,
        PendingReason.QUOTA,
        "Insufficient unused quota in flavor a100: 2 GPUs more needed.",
    ),
    "the flavors, that the queue names": (
        ResourceFlavor,
        (),
        SHORT,
        PendingReason.QUOTA,
        "Insufficient unused quota in flavor a100: 2 GPUs more needed.",
    ),
    "the cohorts": (Cohort, (), "", PendingReason.UNSEEN, "Pending; the reason is unknown: cannot list cohorts."),
    "the ClusterQueue, and Kueue wrote nothing": (
        ClusterQueue,
        (),
        "",
        PendingReason.UNSEEN,
        "Pending; the reason is unknown: cannot list cluster_queues.",
    ),
    "the LocalQueues, and Kueue wrote nothing": (
        LocalQueue,
        (),
        "",
        PendingReason.UNSEEN,
        "Pending; the reason is unknown: cannot list local_queues.",
    ),
}


@pytest.mark.parametrize(("kind", "within", "text", "code", "headline"), UNSEEN.values(), ids=UNSEEN.keys())
def test_what_may_not_be_seen_is_not_missing(
    kind: type[Object], within: tuple[str, ...], text: str, code: PendingReason, headline: str
) -> None:
    """Where Kueue judged by it, that is told; it is compared with nothing that is seen, as that is not all."""
    subject, holder = waiting("w", "prod/lq", 4, text), running("r", "prod/lq", 64, "cq-prod")
    kept = [thing for thing in (*ORG_QUEUES, holder) if not isinstance(thing, kind) or kind is Workload]
    answer = explain(world([*kept, subject], seen=unseen(kind, within=within)), subject.key)
    said = f"Reason from Kueue's message, not verified (cannot list {TABLES[kind]})."
    assert (answer.code, answer.headline, answer.holders) == (code, headline, ())
    assert not [line for line in answer.lines if "available" in line]
    assert (answer.position is None) == (kind in (Workload, LocalQueue))
    assert (said in answer.lines) == (code is PendingReason.QUOTA)


def test_whose_pods_may_not_be_seen_runs_by_kueues_word_or_nobody_knows() -> None:
    runs = running("r", "prod/lq", 4, "cq-prod")
    told = explain(world([*ORG_QUEUES, runs], seen=unseen(Pod)), runs.key)
    assert told.headline == (
        "Running, admitted by cq-prod (by condition PodsReady; its pods are unknown: cannot list pods)."
    )
    held = replace(runs, conditions=runs.conditions[:2])
    answer = explain(world([*ORG_QUEUES, held], seen=unseen(Pod)), held.key)
    assert (answer.code, answer.headline) == (
        PendingReason.NOT_WAITING,
        "Admitted by cq-prod; the state of its pods is unknown: cannot list pods.",
    )
    seen = explain(world([*ORG_QUEUES, runs], seen=unseen(Pod, within=("prod",))), runs.key)
    assert seen.headline == "Running, admitted by cq-prod."


def test_in_a_namespace_that_is_read_a_queue_that_is_not_there_is_missing() -> None:
    subject = waiting("w", "prod/gone", 4)
    answer = explain(world([*ORG_QUEUES, subject], seen=unseen(LocalQueue, within=("prod",))), subject.key)
    assert (answer.code, answer.headline) == (
        PendingReason.QUEUE_MISSING,
        "LocalQueue gone does not exist in namespace prod.",
    )


def test_pods_for_which_kueue_chose_no_place_are_not_just_held_by_a_gate() -> None:
    """Slices of four do not divide six pods: Kueue admits them, and gives a place to four."""
    topology = TopologyRequest(required="rack", slice_required="host", slice_size=4)
    places = tuple(TopologyDomain((name,), 2) for name in ("n1", "n2"))
    part = PodSetAssignment(flavors={GPU: "a100"}, usage={GPU: 6}, count=6, levels=("host",), topology=places)
    six = running("w", "research/lq", 1, "cq-research")
    six = replace(
        six,
        pod_sets=tuple(replace(one, count=6, topology=topology) for one in six.pod_sets),
        admission=Admission(cluster_queue="cq-research", pod_sets=(part,)),
    )
    gated = pod("w-4", wants=1, workload="research/w", gates=(TOPOLOGY_GATE,))
    snapshot = world([*ORG_QUEUES, six, gated])
    answer = explain(snapshot, "research/w")
    assert (answer.code, answer.headline, answer.lines, marks(answer)) == (
        PendingReason.TOPOLOGY,
        "Kueue assigned topology domains to 4 of 6 pods of main: 6 is not a multiple of its slice size 4. "
        "The others stay gated.",
        ("run 4 or 8 pods, each of which is assigned a topology domain",),
        ["✓ run 4 or 8 pods"],
    )
    known = rehearsal_on(snapshot, DEFAULT)
    assert unblocking(snapshot, known, why(snapshot, known, "research/w")) is None
    whole = replace(six, admission=Admission(cluster_queue="cq-research", pod_sets=(replace(part, count=4),)))
    assert explain(world([*ORG_QUEUES, whole, gated]), "research/w").code is PendingReason.GATED


def test_a_workload_with_quota_waits_for_its_checks() -> None:
    subject = running(
        "w",
        "prod/lq",
        4,
        "cq-prod",
        conditions=(Condition("QuotaReserved", True),),
        checks=(CheckState(name="capacity", message="not yet"), CheckState(name="budget", state="Ready")),
    )
    answer = explain(world([*ORG_QUEUES, subject]), "prod/w")

    assert (answer.code, answer.headline) == (PendingReason.CHECKS, "Quota reserved in cq-prod; waiting for capacity.")
    assert (answer.text, answer.lines) == ("not yet", ("capacity: Pending", "budget: Ready"))


FULL = "0/3 nodes are available: 1 node(s) were unschedulable, 2 Insufficient nvidia.com/gpu."


def test_an_admitted_gang_waits_whole_for_nodes() -> None:
    text = f"gang prod/w not scheduled: 1 of 3 pods fit; {FULL}"
    members = [
        pod(f"w-{n}", workload="prod/w", gang="prod/w", gang_size=3, wants=4, message=text, created=START - n)
        for n in range(3)
    ]
    answer = explain(world([*ORG_QUEUES, running("w", "prod/lq", 12, "cq-prod"), *members]), "prod/w")

    assert answer == PendingExplanation(
        subject="prod/w",
        code=PendingReason.GANG,
        headline="Gang not scheduled: 0 of 3 pods placed.",
        text=text,
        source=KUBE_SCHEDULER,
        queue="cq-prod",
        since=START - 2,
        lines=("2 Insufficient nvidia.com/gpu", "1 node(s) were unschedulable"),
        remedies=(Remedy(True, "12 more GPUs free at the same time"),),
    )


def test_a_half_placed_gang_says_what_it_holds() -> None:
    members = [
        pod("w-0", "n", (0, 1), workload="prod/w", gang="prod/w", gang_size=2),
        pod("w-1", workload="prod/w", gang="prod/w", gang_size=2, wants=2, message=FULL),
    ]
    answer = explain(world([*ORG_QUEUES, running("w", "prod/lq", 4, "cq-prod"), *members]), "prod/w")

    assert answer.headline == "Partially scheduled gang: 1 of 2 pods placed; they hold 2 GPUs without running."


@pytest.mark.parametrize(
    ("with_gpus", "cause"), [(1, "1 Insufficient nvidia.com/gpu"), (3, "2 node(s) had untolerated taint(s)")]
)
def test_the_cause_that_matters_is_that_of_the_nodes_that_could_take_it(with_gpus: int, cause: str) -> None:
    """Of three nodes one says that its GPUs are taken: the only one that has any, or one of three that have."""
    text = "0/3 nodes are available: 1 Insufficient nvidia.com/gpu, 2 node(s) had untolerated taint(s)."
    nodes = [node(f"n{n}", gpus=8 if n < with_gpus else 0) for n in range(3)]
    answer = explain(world([*nodes, pod("p", wants=1, message=text)]), "team/p")
    assert answer.headline == f"1 of 1 pods unschedulable: {cause}."


NODE_REMEDIES = {
    FULL: "✓ a node with enough free nvidia.com/gpu (the GPU map shows where it is used)",
    "0/1 nodes are available: 1 node(s) had untolerated taint {nvidia.com/gpu: present}.": (
        "✓ add a toleration for the taint {nvidia.com/gpu: present} to its pods"
    ),
    "0/1 nodes are available: 1 node(s) were unschedulable.": "✓ uncordon a node",
    "0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector.": (
        "✓ add a node with the labels that its node selector or affinity requires, or change these"
    ),
}


@pytest.mark.parametrize(("text", "remedy"), NODE_REMEDIES.items())
def test_a_lone_pod_waits_for_a_node(text: str, remedy: str) -> None:
    answer = explain(world([pod("p", wants=4, message=text)]), "team/p")

    assert (answer.code, answer.text, marks(answer)) == (PendingReason.NODES, text, [remedy])


def test_a_job_is_explained_by_its_workload_or_by_its_pods() -> None:
    job = Job(namespace="prod", name="train")
    queued = waiting("job-train-1", "prod/lq", 4, owner=job.key)

    assert explain(world([*ORG_QUEUES, job, queued]), job.key).code is PendingReason.QUEUED
    lone: list[Object] = [job, pod("a", "n", (0,), job=job.key), pod("b", job=job.key, wants=1, message=FULL)]
    answer = explain(world(lone), job.key)
    assert (answer.code, answer.headline) == (
        PendingReason.NODES,
        "1 of 2 pods unschedulable: 2 Insufficient nvidia.com/gpu.",
    )


@pytest.mark.parametrize(
    ("subject", "headline"),
    [
        (running("w", "prod/lq", 4, "cq-prod"), "Running, admitted by cq-prod."),
        (
            running("w", "prod/lq", 4, "cq-prod", conditions=(Condition("Finished", True, "Succeeded", "done"),)),
            "Finished.",
        ),
        (
            replace(VICTIM, namespace="prod", name="w"),
            "Evicted; its quota is released when its pods terminate.",
        ),
    ],
)
def test_what_does_not_wait_says_so(subject: Workload, headline: str) -> None:
    answer = explain(world([*ORG_QUEUES, subject]), "prod/w")

    assert (answer.code, answer.headline) == (PendingReason.NOT_WAITING, headline)


def test_what_is_finished_names_who_said_how_it_ended_and_when() -> None:
    ended = Condition("Finished", True, "Succeeded", "Job finished successfully", START - MINUTE)
    answer = explain(world([*ORG_QUEUES, running("w", "prod/lq", 4, "cq-prod", conditions=(ended,))]), "prod/w")
    assert (answer.source, answer.since, answer.text) == ("Kueue", START - MINUTE, "Job finished successfully")


def test_an_unknown_name_is_no_error() -> None:
    assert explain(world([]), "ns/gone").headline == "ns/gone not found: it may have been deleted."


def test_what_runs_elsewhere_says_in_which_cluster() -> None:
    there = running("a", "research/lq", 6, into="research", cluster="west")
    answer = explain(world([*ORG, there]), there.key)
    assert answer is not None
    assert answer.headline == "Running in cluster west, admitted by research."


VOLCANO_SAYS: dict[str, PendingReason] = {
    "queue resource quota insufficient": PendingReason.QUOTA,
    "queue resource quota insufficient: insufficient nvidia.com/gpu": PendingReason.QUOTA,
    "resource in cluster is overused": PendingReason.QUOTA,
    "resource quota insufficient, requested: 4, used: 4, limited: 4": PendingReason.QUOTA,
    "Pod ns/w-0 can possibly be assigned to n1, once resource is released": PendingReason.WAITING_FOR_VICTIMS,
    "Pod ns/w-0 can possibly be assigned to n1, once minAvailable is satisfied": PendingReason.GANG,
    "Not enough valid tasks for gang-scheduling, valid: 1, min: 2": PendingReason.GANG,
    "PodSchedulingErrors: Resources were found for 4 pods while 6 are required for gang scheduling. Additional pods "
    "cannot be scheduled due to: no nodes with enough resources were found.": PendingReason.GANG,
    "PodSchedulingErrors: something else": PendingReason.NODES,
    "QueueDoesNotExist: no queue q": PendingReason.QUEUE_MISSING,
}


@pytest.mark.parametrize(("text", "want"), VOLCANO_SAYS.items(), ids=VOLCANO_SAYS)
def test_volcano_and_kai_are_read_to_the_codes_of_kueue(text: str, want: PendingReason) -> None:
    answer = explain(world([pod("w-0", message=text)]), "team/w-0")
    assert (answer.code, answer.text) == (want, text)


def test_pods_that_have_nodes_and_do_not_start_say_why() -> None:
    pods = [
        pod("w-0", "n1", (0,), workload="prod/w", phase="Pending", reason="ImagePullBackOff", message="no such tag"),
        pod("w-1", "n1", (1,), workload="prod/w"),
    ]
    answer = explain(world([*ORG_QUEUES, running("w", "prod/lq", 2, "cq-prod"), *pods]), "prod/w")
    assert (answer.code, answer.headline) == (
        PendingReason.IMAGE,
        "1 of 2 pods do not start: its image cannot be pulled (ImagePullBackOff).",
    )
    assert (answer.text, answer.source, answer.lines) == ("no such tag", "kubelet", ("w-0 on n1: ImagePullBackOff",))
    crash = replace(pods[0], reason="CrashLoopBackOff")
    assert explain(world([crash]), crash.key).code is PendingReason.POD_FAILURE


def test_a_gang_that_is_short_of_pods_waits_for_more_than_the_victims_on_one_node() -> None:
    text = "Pod ns/w-0 can possibly be assigned to n1, once resource is released"
    alone = pod("w-0", message=text)
    assert explain(world([alone]), "team/w-0").code is PendingReason.WAITING_FOR_VICTIMS
    assert explain(world([replace(alone, gang="g", gang_size=2)]), "team/w-0").code is PendingReason.GANG
    missing = replace(alone, message="QueueDoesNotExist: no queue q", gang="g", gang_size=2)
    assert explain(world([missing]), "team/w-0").code is PendingReason.QUEUE_MISSING
