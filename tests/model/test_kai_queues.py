"""Queues, pod groups and GPU parts of KAI Scheduler, as their manifests say them."""

import json

import pytest

from gpuconsole.model.clock import MINUTE
from gpuconsole.model.kai import KaiPodGroup, KaiQueue, KaiSubGroup, KaiTopology, QueueResource
from gpuconsole.model.manifests import load_text

TEAM = """
apiVersion: scheduling.run.ai/v2
kind: Queue
metadata: {name: team-a}
spec:
  displayName: Team A
  parentQueue: org
  priority: 200
  preemptMinRuntime: 10m
  resources:
    gpu: {quota: 4, overQuotaWeight: 0.5, limit: -1}
    cpu: {quota: -1, limit: -1}
"""


def test_a_queue_has_quotas_weights_and_limits_by_resource() -> None:
    assert load_text(TEAM, "team.yaml").objects == (
        KaiQueue(
            name="team-a",
            display_name="Team A",
            parent="org",
            priority=200,
            preempt_min_runtime=10 * MINUTE,
            gpu=QueueResource(quota=4, over_quota_weight=0.5, limit=-1),
            cpu=QueueResource(quota=-1, limit=-1),
        ),
    )


def test_a_queue_without_resources_may_hold_nothing() -> None:
    text = "apiVersion: scheduling.run.ai/v2\nkind: Queue\nmetadata: {name: empty}\nspec: {}\n"
    assert load_text(text, "empty.yaml").objects == (KaiQueue(name="empty"),)


def test_amounts_below_minus_one_are_refused_and_read_as_no_bound() -> None:
    loaded = load_text(TEAM.replace("quota: 4", "quota: -3"), "team.yaml")
    assert ("bad-queue", "-3 is negative") in [(finding.code, finding.problem) for finding in loaded.findings]
    (queue,) = loaded.objects
    assert isinstance(queue, KaiQueue)
    assert queue.gpu.quota == -1


GANG = """
apiVersion: scheduling.run.ai/v2alpha2
kind: PodGroup
metadata: {name: gang}
spec:
  minMember: 4
  queue: team-a
  priorityClassName: train
  preemptibility: non-preemptible
  topologyConstraint: {topology: site, requiredTopologyLevel: zone}
  subGroups:
    - {name: workers, minMember: 3, topologyConstraint: {topology: site, preferredTopologyLevel: rack}}
    - {name: leader, parent: workers}
"""


def test_a_pod_group_has_sub_groups_with_minima_and_places_of_their_own() -> None:
    assert load_text(GANG, "gang.yaml").objects == (
        KaiPodGroup(
            name="gang",
            min_member=4,
            queue="team-a",
            priority_class="train",
            preemptibility="non-preemptible",
            constraint=KaiTopology(topology="site", required="zone"),
            sub_groups=(
                KaiSubGroup(name="workers", min_member=3, constraint=KaiTopology(topology="site", preferred="rack")),
                KaiSubGroup(name="leader", parent="workers"),
            ),
        ),
    )


def found(text: str) -> list[tuple[str, str]]:
    return [(finding.path, finding.problem) for finding in load_text(text, "x.yaml").findings]


def test_what_the_webhooks_refuse_is_said_where_it_stands() -> None:
    topologies = TEAM + "---\napiVersion: kai.scheduler/v1alpha1\nkind: Topology\nmetadata: {name: site}\n"
    topologies += "spec: {levels: [{nodeLabel: zone}, {nodeLabel: rack}]}\n---\n"
    top = "---\napiVersion: scheduling.run.ai/v2\nkind: Queue\nmetadata: {name: org}\nspec: {resources: {}}\n"
    beside = topologies.replace("parentQueue: org", "displayName: a").replace("displayName: Team A", "") + top + "---"
    parent = "subGroups[1].parent"
    assert found(beside + GANG.replace("parent: workers", "parent: nobody")) == [
        (f"spec.{parent}", "parent nobody of leader was not found")
    ]
    assert found(beside + GANG.replace("name: leader", "name: workers")) == [
        ("spec.subGroups[1].name", "duplicate subgroup name workers")
    ]
    assert found(beside + GANG.replace("parent: workers", "parent: leader")) == [
        (f"spec.{parent}", "cycle detected in subgroups")
    ]
    assert found("apiVersion: scheduling.run.ai/v2\nkind: Queue\nmetadata: {name: bare}\nspec: {}\n") == [
        ("spec.resources", "resources must be specified")
    ]


def test_names_that_nothing_defines_and_queues_that_take_no_jobs_are_told() -> None:
    top = "---\napiVersion: scheduling.run.ai/v2\nkind: Queue\nmetadata: {name: org}\nspec: {resources: {}}\n"
    assert found(GANG) == [
        ("spec.queue", "Queue 'team-a' does not exist"),
        ("spec.topologyConstraint.topology", "Requested topology site does not exist"),
        ("spec.subGroups[0].topologyConstraint.topology", "Requested topology site does not exist"),
    ]
    assert found(TEAM) == [
        ("spec.parentQueue", "KAI Queue org is not defined: KAI leaves this queue out, and all below it")
    ]
    alone = "apiVersion: scheduling.run.ai/v2alpha2\nkind: PodGroup\nmetadata: {name: g}\nspec: {queue: org}\n"
    assert found(alone + top + "---" + TEAM) == [("spec.queue", "KAI Queue org has queues below it: it takes no jobs")]


@pytest.mark.parametrize(
    ("notes", "limits", "want"),
    [
        ({"gpu-fraction": "0.5"}, {}, []),
        ({"gpu-fraction": "1.5"}, {}, ["gpu-fraction annotation value must be a positive number smaller than 1.0"]),
        (
            {"gpu-fraction": "0.5"},
            {"nvidia.com/gpu": "1"},
            ["cannot have both GPU fraction request and whole GPU resource request/limit"],
        ),
        ({"gpu-memory": "-3"}, {}, ["gpu-memory annotation value must be a positive integer greater than 0"]),
        ({"gpu-memory": "2", "gpu-fraction": "0.5"}, {}, ["cannot request both GPU and GPU memory"]),
        (
            {"gpu-fraction-num-devices": "2"},
            {},
            ["cannot request multiple fractional devices without specifying fraction portion or gpu-memory"],
        ),
        ({"mps": "true"}, {}, ["MPS is only supported with GPU fraction request"]),
    ],
)
def test_parts_of_gpus_that_cannot_be_asked_for(notes: dict[str, str], limits: dict[str, str], want: list[str]) -> None:
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "annotations": notes},
        "spec": {"containers": [{"name": "main", "image": "example.com/work:1", "resources": {"limits": limits}}]},
    }
    assert [problem for _, problem in found(json.dumps(pod))] == want
