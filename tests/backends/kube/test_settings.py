"""How Kueue was started is read where that is allowed; what is not is assumed, and said."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpuconsole.backends.kube.discovery import Served
from gpuconsole.backends.kube.kueue_config import VOLCANO_ASSUMED, policy_of
from gpuconsole.scheduling.kueue.config import KueueConfig
from gpuconsole.scheduling.volcano.config import VolcanoPolicy
from gpuconsole.sim.policy import SimPolicy
from tests.backends.kube.test_visibility import Kueue

QUEUES = Served(
    group="kueue.x-k8s.io", version="v1beta2", kind="ClusterQueue", plural="clusterqueues", namespaced=False
)
DEPLOYMENTS = "/apis/apps/v1/deployments"
USUAL = "/apis/apps/v1/namespaces/kueue-system/deployments/kueue-controller-manager"
MAP = "/api/v1/namespaces/kueue-system/configmaps/kueue-manager-config"
FAIR = """
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
fairSharing:
  preemptionStrategies: [LessThanInitialShare]
"""
FORBIDDEN = (403, {"code": 403, "reason": "Forbidden"})
NOT_THERE = "ConfigMap kueue-system/kueue-manager-config not found"
ASSUMED = f"Kueue's Configuration is assumed to be the default: {NOT_THERE}; give it with --kueue-config FILE"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Kueue]:
    made = Kueue(tmp_path)
    yield made
    made.server.shutdown()
    made.server.server_close()


def read(cluster: Kueue, given: KueueConfig | None = None) -> tuple[KueueConfig, tuple[str, ...]]:
    policy, assumed = policy_of(cluster.connection, [QUEUES], given)
    assert policy.kueue is not None
    return policy.kueue, assumed


def config_map(
    text: str = FAIR, name: str = "kueue-manager-config", key: str = "controller_manager_config.yaml"
) -> Any:
    return 200, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {key: text}}


def deployment(*args: str, image: str = "registry.k8s.io/kueue/kueue:v0.19.2", **where: str) -> dict[str, Any]:
    mounts = [
        {
            "name": "manager-config",
            "mountPath": "/controller_manager_config.yaml",
            "subPath": "controller_manager_config.yaml",
        }
    ]
    proxy = {"image": "registry.example/proxy:1", "args": ["--secure"]}
    manager = {"image": image, "command": ["/manager"], "args": list(args), "volumeMounts": mounts}
    volumes = [
        {"name": "manager-config", "configMap": {"name": "kueue-manager-config"}},
        {"name": "cert", "secret": {}},
    ]
    meta = {"namespace": "kueue-system", "name": "kueue-controller-manager", **where}
    spec = {"containers": [proxy, manager], "volumes": volumes}
    return {"metadata": meta, "spec": {"template": {"spec": spec}}}


def test_gates_of_the_arguments_count_with_the_configuration_that_they_name(cluster: Kueue) -> None:
    args = ("--config=/controller_manager_config.yaml", "--zap-log-level=2", "--feature-gates=PartialAdmission=false")
    cluster.answers = {DEPLOYMENTS: (200, {"items": [deployment(*args)]}), MAP: config_map()}
    config, assumed = read(cluster)
    assert assumed == ()
    assert (config.fair_sharing, config.enabled("PartialAdmission")) == (True, False)
    assert cluster.asked[0].partition("?")[2].startswith("labelSelector=app.kubernetes.io")


def test_arguments_may_be_written_apart_and_the_manager_may_be_elsewhere(cluster: Kueue) -> None:
    made = deployment(
        "--config",
        "/etc/kueue/mine.yaml",
        "--feature-gates",
        "PartialAdmission=false",
        namespace="queues",
        name="my-kueue",
    )
    container = made["spec"]["template"]["spec"]["containers"][1]
    container["volumeMounts"] = [{"name": "manager-config", "mountPath": "/etc/kueue"}]
    made["spec"]["template"]["spec"]["volumes"][0]["configMap"]["name"] = "mine"
    there = "/api/v1/namespaces/queues/configmaps/mine"
    cluster.answers = {DEPLOYMENTS: (200, {"items": [made]}), there: config_map(name="mine", key="mine.yaml")}
    config, assumed = read(cluster)
    assert assumed == ()
    assert (config.fair_sharing, config.enabled("PartialAdmission")) == (True, False)


def test_a_manager_that_was_told_of_no_configuration_goes_by_its_defaults(cluster: Kueue) -> None:
    cluster.answers = {DEPLOYMENTS: (200, {"items": [deployment()]}), MAP: config_map()}
    assert read(cluster) == (KueueConfig(), ())


def test_who_may_not_list_deployments_may_read_the_one_of_the_usual_name(cluster: Kueue) -> None:
    cluster.answers = {
        DEPLOYMENTS: FORBIDDEN,
        USUAL: (200, deployment("--feature-gates=PartialAdmission=false")),
    }
    config, assumed = read(cluster)
    assert (config.enabled("PartialAdmission"), assumed) == (False, ())


def test_without_rights_the_configuration_still_counts_and_the_gates_are_assumed(cluster: Kueue) -> None:
    cluster.answers = {DEPLOYMENTS: FORBIDDEN, USUAL: FORBIDDEN, MAP: config_map()}
    config, assumed = read(cluster)
    assert config.fair_sharing
    assert assumed == (
        "Kueue's feature gates are assumed from its Configuration: "
        "reading Deployment kueue-system/kueue-controller-manager is forbidden",
    )


def test_a_configuration_that_may_not_be_read_leaves_the_gates(cluster: Kueue) -> None:
    args = ("--config=/controller_manager_config.yaml", "--feature-gates=PartialAdmission=false")
    cluster.answers = {DEPLOYMENTS: (200, {"items": [deployment(*args)]}), MAP: FORBIDDEN}
    config, assumed = read(cluster)
    assert not config.enabled("PartialAdmission")
    assert assumed == (ASSUMED.replace("not found", "is forbidden"),)


def test_where_nothing_of_it_is_found_both_are_assumed(cluster: Kueue) -> None:
    cluster.answers = {DEPLOYMENTS: (200, {"items": []})}
    gates = "Kueue's feature gates are assumed from the defaults: its Deployment was not found"
    assert read(cluster) == (KueueConfig(), (ASSUMED, gates))


@pytest.mark.parametrize(
    ("gates", "said"),
    [
        (
            "Quux=true,PartialAdmission=false",
            "ignored feature gates of kueue-system/kueue-controller-manager: unrecognized feature gate: Quux",
        ),
        (
            "PartialAdmission",
            "Kueue's feature gates are assumed: --feature-gates of kueue-system/kueue-controller-manager: "
            "missing bool value for PartialAdmission",
        ),
    ],
)
def test_gates_that_nobody_knows_are_left_out_and_said(cluster: Kueue, gates: str, said: str) -> None:
    cluster.answers = {DEPLOYMENTS: (200, {"items": [deployment(f"--feature-gates={gates}")]})}
    config, assumed = read(cluster)
    assert assumed == (said,)
    assert config.enabled("PartialAdmission") is ("Quux" not in gates)


def test_another_version_is_said(cluster: Kueue) -> None:
    cluster.answers = {DEPLOYMENTS: (200, {"items": [deployment(image="example.org:5000/kueue:v0.15.3@sha256:ab")]})}
    said = "the cluster runs Kueue 0.15 (kueue-system/kueue-controller-manager); the simulator implements 0.19"
    assert read(cluster)[1] == (said,)


PREFIXES = "resources.excludeResourcePrefixes"
WRONG = """\
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
fairSharing:
  preemptionStrategies: [Sometimes]
resources: {excludeResourcePrefixes: 7}
"""


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (config_map("kind: Nothing\n"), "has errors: line 1: it holds no Configuration of Kueue"),
        (config_map(WRONG), f"has errors: line 5, {PREFIXES}: Expected `array`, got `int`, and 1 more"),
        (config_map(key="other.yaml"), "has no controller_manager_config.yaml"),
        ((200, ["no", "map"]), "cannot be parsed"),
    ],
)
def test_a_configuration_that_cannot_be_used_is_assumed_to_be_the_default(
    cluster: Kueue, answer: Any, why: str
) -> None:
    cluster.answers = {
        DEPLOYMENTS: (200, {"items": [deployment("--config=/controller_manager_config.yaml")]}),
        MAP: answer,
    }
    assert read(cluster) == (KueueConfig(), (ASSUMED.replace("not found", why),))


def test_what_was_given_is_not_asked_for(cluster: Kueue) -> None:
    given = KueueConfig(fair_sharing=True)
    assert read(cluster, given) == (given, ())
    assert policy_of(cluster.connection, []) == (SimPolicy(kueue=None), ())
    assert cluster.asked == []


def test_where_volcano_is_served_it_places_what_names_it(cluster: Kueue) -> None:
    volcano = Served(group="scheduling.volcano.sh", version="v1beta1", kind="Queue", plural="queues", namespaced=False)
    both = SimPolicy(kueue=None, second_scheduler=VolcanoPolicy(scheduler="volcano"))
    assert policy_of(cluster.connection, [volcano]) == (both, (VOLCANO_ASSUMED,))
