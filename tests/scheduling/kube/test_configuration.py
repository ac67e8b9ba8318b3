"""KubeSchedulerConfiguration, read as kube-scheduler reads it."""

import pytest

from gpuconsole.model.clock import SECOND
from gpuconsole.model.labels import HOSTNAME, NodeTerm, Requirement
from gpuconsole.model.pod_template import SpreadConstraint
from gpuconsole.scheduling.kube.profile import (
    FILTERS,
    SCORES,
    BackoffSettings,
    SchedulerProfile,
    ScoringStrategy,
    read_configuration,
)

HEAD = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
FULL = (
    HEAD
    + """
percentageOfNodesToScore: 30
podInitialBackoffSeconds: 2
podMaxBackoffSeconds: 60
profiles:
- schedulerName: packer
  percentageOfNodesToScore: 100
  plugins:
    multiPoint:
      disabled: [{name: ImageLocality}]
    score:
      disabled: [{name: NodeResourcesBalancedAllocation}, {name: TaintToleration}]
      enabled: [{name: NodeResourcesFit, weight: 5}]
    filter:
      disabled: [{name: NodePorts}]
    postFilter:
      disabled: [{name: "*"}]
  pluginConfig:
  - name: NodeResourcesFit
    args:
      apiVersion: kubescheduler.config.k8s.io/v1
      kind: NodeResourcesFitArgs
      ignoredResourceGroups: [example.com]
      scoringStrategy:
        type: RequestedToCapacityRatio
        resources: [{name: nvidia.com/gpu, weight: 3}, {name: cpu}]
        requestedToCapacityRatio:
          shape: [{utilization: 0, score: 0}, {utilization: 100, score: 10}]
  - name: InterPodAffinity
    args: {hardPodAffinityWeight: 7}
  - name: PodTopologySpread
    args:
      defaultingType: List
      defaultConstraints: [{topologyKey: kubernetes.io/hostname, maxSkew: 2, whenUnsatisfiable: ScheduleAnyway}]
  - name: NodeAffinity
    args:
      addedAffinity:
        requiredDuringSchedulingIgnoredDuringExecution:
          nodeSelectorTerms: [{matchExpressions: [{key: pool, operator: In, values: [gpu]}]}]
  - name: DefaultPreemption
    args: {minCandidateNodesPercentage: 20, minCandidateNodesAbsolute: 5}
- schedulerName: default-scheduler
"""
)


def test_a_configuration_with_everything_in_it() -> None:
    read = read_configuration(FULL)
    assert read.findings == ()
    backoff = BackoffSettings(2 * SECOND, 60 * SECOND)
    packer = SchedulerProfile(
        name="packer",
        filters=tuple(name for name in FILTERS if name != "NodePorts"),
        scores=(("NodeResourcesFit", 5), ("NodeAffinity", 2), ("PodTopologySpread", 2), ("InterPodAffinity", 2)),
        preempts=False,
        strategy=ScoringStrategy(
            type="RequestedToCapacityRatio",
            resources=(("nvidia.com/gpu", 3), ("cpu", 1)),
            shape=((0, 0), (100, 10)),
        ),
        ignored_groups=("example.com",),
        added_affinity=(NodeTerm((Requirement("pool", "In", ("gpu",)),)),),
        spread=(SpreadConstraint(HOSTNAME, 2, "ScheduleAnyway"),),
        hard_affinity_weight=7,
        percentage=100,
        candidates=(20, 5),
        backoff=backoff,
    )
    assert read.profiles == (packer, SchedulerProfile(percentage=30, backoff=backoff))
    assert read.named("") == packer
    assert read.named("packer") == packer
    assert read.named("other") is None


def scores(text: str) -> tuple[tuple[str, int], ...]:
    read = read_configuration(HEAD + "profiles:\n- plugins:\n" + text)
    assert read.errors == []
    return read.profiles[0].scores


POINTS: dict[str, tuple[str, tuple[tuple[str, int], ...]]] = {
    "nothing said is the default": ("    bind: {}\n", SCORES),
    "a weight at multiPoint": (
        "    multiPoint: {enabled: [{name: NodeAffinity, weight: 9}]}\n",
        tuple((name, 9 if name == "NodeAffinity" else weight) for name, weight in SCORES),
    ),
    "nothing but what is named": (
        '    multiPoint: {disabled: [{name: "*"}], enabled: [{name: NodeResourcesFit}]}\n',
        (("NodeResourcesFit", 1),),
    ),
    "a point that begins anew": (
        '    score: {disabled: [{name: "*"}], enabled: [{name: ImageLocality, weight: 4}]}\n',
        (("ImageLocality", 4),),
    ),
    "what the point names comes first": (
        "    score: {enabled: [{name: ImageLocality, weight: 4}]}\n",
        (("ImageLocality", 4), *((name, weight) for name, weight in SCORES if name != "ImageLocality")),
    ),
}


@pytest.mark.parametrize("name", POINTS)
def test_points_are_merged_with_multi_point(name: str) -> None:
    text, wanted = POINTS[name]
    assert scores(text) == wanted


MISTAKES: dict[str, tuple[str, str]] = {
    "no configuration": ("kind: Pod\n", ": it holds no KubeSchedulerConfiguration"),
    "an older version": (
        "apiVersion: kubescheduler.config.k8s.io/v1beta2\nkind: KubeSchedulerConfiguration\n",
        "apiVersion: kube-scheduler does not read kubescheduler.config.k8s.io/v1beta2",
    ),
    "back-off that shrinks": (
        HEAD + "podInitialBackoffSeconds: 20\n",
        "podMaxBackoffSeconds: it is less than podInitialBackoffSeconds (20)",
    ),
    "two profiles of one name": (HEAD + "profiles: [{}, {}]\n", "profiles: two profiles are named default-scheduler"),
    "a shape that falls back": (
        HEAD + "profiles: [{pluginConfig: [{name: NodeResourcesFit, args: {scoringStrategy: {type: "
        "RequestedToCapacityRatio, requestedToCapacityRatio: {shape: [{utilization: 50}, {utilization: 50}]}}}}]}]\n",
        "profiles[0].pluginConfig[0].args.scoringStrategy.requestedToCapacityRatio.shape: "
        "utilization has to rise from point to point",
    ),
    "constraints that are not asked for": (
        HEAD + "profiles: [{pluginConfig: [{name: PodTopologySpread, args: {defaultConstraints: "
        "[{topologyKey: zone, maxSkew: 1, whenUnsatisfiable: ScheduleAnyway}]}}]}]\n",
        "profiles[0].pluginConfig[0].args.defaultingType: defaultConstraints hold only with defaultingType List",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_are_named_with_their_place(name: str) -> None:
    text, wanted = MISTAKES[name]
    (found,) = read_configuration(text).errors
    assert f"{found.path}: {found.problem}" == wanted


WARNINGS: dict[str, tuple[str, str]] = {
    "an extender": ("extenders: [{urlPrefix: x}]\n", "extenders are not called by the simulated scheduler"),
    "a plugin that is not here": (
        "profiles: [{plugins: {score: {enabled: [{name: Trimaran}]}}}]\n",
        "there is no plugin Trimaran here",
    ),
    "pods without room": (
        "profiles: [{plugins: {filter: {disabled: [{name: NodeResourcesFit}]}}}]\n",
        "NodeResourcesFit does not filter, so pods would be bound to nodes without enough free resources",
    ),
    "arguments of others": (
        "profiles: [{pluginConfig: [{name: VolumeBinding, args: {}}]}]\n",
        "arguments of VolumeBinding change nothing here",
    ),
}


@pytest.mark.parametrize("name", WARNINGS)
def test_what_has_no_effect_is_told(name: str) -> None:
    text, wanted = WARNINGS[name]
    (found,) = read_configuration(HEAD + text).findings
    assert found.problem == wanted


def test_a_config_map_holds_a_configuration_too() -> None:
    inner = "".join(f"    {line}\n" for line in FULL.splitlines())
    text = f"kind: ConfigMap\ndata:\n  scheduler-config.yaml: |\n{inner}"
    assert read_configuration(text) == read_configuration(FULL)
