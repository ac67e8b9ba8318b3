"""Queues of KAI Scheduler, as their manifests say them."""

from gpuconsole.model.clock import MINUTE
from gpuconsole.model.kai import KaiQueue, QueueResource
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
    assert [(finding.code, finding.problem) for finding in loaded.findings] == [("bad-queue", "-3 is negative")]
    (queue,) = loaded.objects
    assert isinstance(queue, KaiQueue)
    assert queue.gpu.quota == -1
