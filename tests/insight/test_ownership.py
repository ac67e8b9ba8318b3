"""The ownership tree: from an object to all owners above it and all that it owns, and from a node's GPUs upwards."""

from msgspec.structs import replace

from gpuconsole.insight.index.ownership import MOST, USERS, OwnedObject, ownership
from gpuconsole.model.cluster import Pod, PodPhase
from gpuconsole.model.gpus.mig import MigInstance
from gpuconsole.model.job import Job
from gpuconsole.model.queues import Cohort
from gpuconsole.model.snapshot import Snapshot
from tests.insight.test_hardware import divided, live_pod
from tests.support.console_clusters import FLAVOR, org_cohort, running, snapshot_of, waiting

ABOVE = ["Cohort org-cohort", " ClusterQueue cq-research", "  LocalQueue research/lq-research"]


def tree(snapshot: Snapshot, table: str, key: str, label: str = "") -> list[str]:
    return [line(row) for row in ownership(snapshot, table, key, label)]


def line(row: OwnedObject) -> str:
    return f"{' ' * row.depth}{row.kind} {row.name or row.key}"


def test_a_pod_its_workload_and_its_job_are_in_one_tree_from_the_cohort_to_the_gpus() -> None:
    snapshot = snapshot_of(org_cohort())
    expected = [
        *ABOVE,
        "   Job research/rlhf",
        "    Workload research/rlhf",
        "     Pod research/rlhf-0",
        "      GPU GPU 0-1",
        "      GPU GPU 2-5",
    ]
    for table, key in (("pods", "research/rlhf-0"), ("workloads", "research/rlhf"), ("jobs", "Job/research/rlhf")):
        assert tree(snapshot, table, key) == expected
    rows = {line(row).strip(): row for row in ownership(snapshot, "pods", "research/rlhf-0")}
    assert (rows["Pod research/rlhf-0"].node, rows["Pod research/rlhf-0"].state) == ("node-3", "Running")
    assert (rows["GPU GPU 2-5"].state, rows["GPU GPU 2-5"].table, rows["GPU GPU 2-5"].key) == (
        "borrowed",
        "nodes",
        "node-3",
    )


def test_a_node_goes_from_its_gpus_up_to_the_jobs() -> None:
    assert tree(snapshot_of(org_cohort()), "nodes", "node-2") == [
        "Node node-2",
        " GPU GPU 0-3",
        "  Pod research/llm-ft-0",
        "   Workload research/llm-ft",
        "    Job research/llm-ft",
        " GPU GPU 4-5",
        "  Pod research/embed-0",
        "   Workload research/embed",
        "    Job research/embed",
        " GPU GPU 6-7",
    ]


def test_queues_and_cohorts_go_down_to_their_workloads_and_flavors_through_their_nodes() -> None:
    snapshot = snapshot_of(org_cohort())
    workloads = [f"Workload research/{name}" for name in ("embed", "llm-ft", "rlhf", "rlhf-2")]
    assert tree(snapshot, "local_queues", "research/lq-research") == [*ABOVE, *(f"   {one}" for one in workloads)]
    assert tree(snapshot, "cluster_queues", "cq-research") == [*ABOVE, *(f"   {one}" for one in workloads)]
    nested = snapshot_of([*org_cohort(), Cohort(name="org-cohort", parent="top"), Cohort(name="top")])
    assert tree(nested, "cohorts", "top")[:3] == ["Cohort top", " Cohort org-cohort", "  ClusterQueue cq-prod"]
    assert tree(nested, "cohorts", "org-cohort")[:3] == ["Cohort top", " Cohort org-cohort", "  ClusterQueue cq-prod"]
    assert tree(snapshot, "flavors", FLAVOR)[:5] == [
        f"ResourceFlavor {FLAVOR}",
        " ClusterQueue cq-prod",
        " ClusterQueue cq-research",
        " Node node-1",
        "  Workload prod/serve",
    ]
    assert [one for one in tree(snapshot, "cohorts", "org-cohort") if "Queue" in one][2:] == ABOVE[1:]


def test_jobs_that_own_jobs_show_them_with_the_pods_that_have_no_workload() -> None:
    outer = Job(kind="JobSet", namespace="lab", name="set")
    inner = Job(namespace="lab", name="set-0", owner=outer.key)
    pods = [
        Pod(namespace="lab", name=f"set-0-{number}", job=inner.key, index=number, phase=PodPhase.PENDING)
        for number in (1, 0)
    ]
    snapshot = snapshot_of([outer, inner, *pods])
    assert tree(snapshot, "pods", "lab/set-0-1") == [
        "JobSet lab/set",
        " Job lab/set-0",
        "  Pod lab/set-0-0",
        "  Pod lab/set-0-1",
    ]


def test_owners_in_a_circle_and_cohorts_in_a_circle_end() -> None:
    jobs = [Job(namespace="lab", name=a, owner=f"Job/lab/{b}") for a, b in (("a", "b"), ("b", "a"))]
    assert sorted(one.strip() for one in tree(snapshot_of(jobs), "jobs", "Job/lab/a")) == ["Job lab/a", "Job lab/b"]
    cohorts = [Cohort(name="a", parent="b"), Cohort(name="b", parent="a")]
    assert len(tree(snapshot_of(cohorts), "cohorts", "a")) <= 3


def test_mig_instances_are_rows_of_their_pod() -> None:
    pod = replace(live_pod("a", **{"1g.10gb": 1}), slices=(MigInstance(0, "1g.10gb", 0),))
    rows = tree(snapshot_of([divided(), pod]), "pods", pod.key)
    assert rows[0] == "Pod team/a"
    assert [row.rpartition(" of ")[0] for row in rows[1:]] == [" MIG instance MIG 1g.10gb"]


def test_a_user_has_the_workloads_with_the_label_those_with_quota_first() -> None:
    mine = [replace(waiting("a", 1), labels={"who": "ada"}), replace(running("b", 1), annotations={"who": "ada"})]
    snapshot = snapshot_of([*org_cohort(), *mine])
    assert tree(snapshot, USERS, "ada", "who") == ["User ada", " Workload research/b", " Workload research/a"]


def test_what_does_not_exist_has_no_tree_and_a_large_one_is_cut() -> None:
    assert tree(snapshot_of(org_cohort()), "pods", "research/none") == []
    many = [waiting(f"w{number}", 1) for number in range(MOST + 10)]
    assert len(tree(snapshot_of([*org_cohort(), *many]), "cluster_queues", "cq-research")) == MOST
