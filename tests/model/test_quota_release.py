"""When the quota of an evicted job becomes free: one case for each integration of Kueue."""

import pytest

from gpuconsole.model.clock import SECOND
from gpuconsole.model.jobs.workloads import (
    CONTROLLER_DELAYS,
    FAST_RELEASE_GATE,
    LWS_GROUP,
    NO_DELAY,
    POD_GROUP,
    ControllerDelay,
    QuotaRelease,
    quota_release,
    starts_before_old_pods_end,
)
from gpuconsole.scheduling.kueue.config import GATE_DEFAULTS
from gpuconsole.scheduling.kueue.configuration.validation import BUILT_IN_INTEGRATIONS

WITHOUT_ACTIVE_PODS = QuotaRelease.WITHOUT_ACTIVE_PODS
PODS_STOPPED = QuotaRelease.PODS_STOPPED
LAUNCHER_STOPPED = QuotaRelease.LAUNCHER_STOPPED
PODS_DELETED = QuotaRelease.PODS_DELETED

RULES = {
    "Job": WITHOUT_ACTIVE_PODS,
    "JobSet": WITHOUT_ACTIVE_PODS,
    "TrainJob": WITHOUT_ACTIVE_PODS,
    "PyTorchJob": WITHOUT_ACTIVE_PODS,
    "TFJob": WITHOUT_ACTIVE_PODS,
    "XGBoostJob": WITHOUT_ACTIVE_PODS,
    "PaddleJob": WITHOUT_ACTIVE_PODS,
    "JAXJob": WITHOUT_ACTIVE_PODS,
    "MPIJob": LAUNCHER_STOPPED,
    "RayJob": WITHOUT_ACTIVE_PODS,
    "RayCluster": PODS_DELETED,
    "RayService": WITHOUT_ACTIVE_PODS,
    "AppWrapper": PODS_DELETED,
    "SparkApplication": WITHOUT_ACTIVE_PODS,
    "Pod": WITHOUT_ACTIVE_PODS,
    "Deployment": WITHOUT_ACTIVE_PODS,
    POD_GROUP: PODS_STOPPED,
    "StatefulSet": PODS_STOPPED,
    "LeaderWorkerSet": PODS_STOPPED,
    LWS_GROUP: PODS_STOPPED,
}
POD_GROUPS = {POD_GROUP, "StatefulSet", "LeaderWorkerSet", LWS_GROUP}
OVERLAPPING = {"Job", "JobSet", "TrainJob", "RayJob", "Pod", "Deployment"}


@pytest.mark.parametrize(("kind", "rule"), RULES.items(), ids=list(RULES))
def test_each_integration_releases_quota_by_its_own_rule(kind: str, rule: QuotaRelease) -> None:
    assert quota_release(kind) is rule


def test_every_integration_of_kueue_has_a_rule() -> None:
    assert {kind for kind, _, _ in BUILT_IN_INTEGRATIONS.values()} <= set(RULES)


@pytest.mark.parametrize("kind", ["", "VolcanoJob"], ids=["Workload without a job", "kind without an integration"])
def test_kueue_leaves_other_workloads_to_their_owner(kind: str) -> None:
    assert quota_release(kind) is PODS_STOPPED
    assert quota_release(kind, fast_release=True) is PODS_STOPPED


@pytest.mark.parametrize(("kind", "rule"), RULES.items(), ids=list(RULES))
def test_fast_release_ignores_terminating_pods_of_pod_groups_only(kind: str, rule: QuotaRelease) -> None:
    expected = WITHOUT_ACTIVE_PODS if kind in POD_GROUPS else rule
    assert quota_release(kind, fast_release=True) is expected


def test_fast_release_is_a_gate_of_kueue_that_is_off_by_default() -> None:
    assert GATE_DEFAULTS[FAST_RELEASE_GATE] is False


@pytest.mark.parametrize(("kind", "rule"), RULES.items(), ids=list(RULES))
def test_only_a_ray_cluster_depends_on_having_been_ready(kind: str, rule: QuotaRelease) -> None:
    expected = WITHOUT_ACTIVE_PODS if kind == "RayCluster" else rule
    assert quota_release(kind, was_ready=False) is expected


DELAYS = {
    "RayCluster": ControllerDelay(deletion=2 * SECOND),
    "RayService": ControllerDelay(deletion=2 * SECOND, polling=2 * SECOND),
    "AppWrapper": ControllerDelay(polling=5 * SECOND),
}


@pytest.mark.parametrize("kind", RULES, ids=list(RULES))
def test_some_controllers_add_a_fixed_wait(kind: str) -> None:
    assert CONTROLLER_DELAYS.get(kind, NO_DELAY) == DELAYS.get(kind, NO_DELAY)


@pytest.mark.parametrize("kind", RULES, ids=list(RULES))
def test_new_pods_of_some_kinds_start_beside_terminating_ones(kind: str) -> None:
    assert starts_before_old_pods_end(kind) is (kind in OVERLAPPING)


@pytest.mark.parametrize("kind", RULES, ids=list(RULES))
def test_jobs_that_replace_failed_pods_only_wait_for_terminating_ones(kind: str) -> None:
    made_of_jobs = kind in {"Job", "JobSet", "TrainJob"}
    assert starts_before_old_pods_end(kind, replaces_failed_only=True) is (kind in OVERLAPPING and not made_of_jobs)
