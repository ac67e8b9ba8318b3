"""Kueue's Configuration file: what it gives admission, and what is said of what Kueue would not take."""

from collections.abc import Mapping
from textwrap import dedent

import pytest

from gpuconsole.model.clock import MINUTE, SECOND
from gpuconsole.model.documents.findings import Finding, Severity
from gpuconsole.scheduling.kueue.config import (
    AdmissionFairSharing,
    CounterSource,
    DeviceClassMapping,
    KueueConfig,
    ObjectRetention,
    PreemptionStrategy,
    RequeuingStrategy,
    Transformation,
    WaitForPodsReady,
)
from gpuconsole.scheduling.kueue.configuration import form as durations
from gpuconsole.scheduling.kueue.configuration.loading import LoadedConfiguration, load_text
from tests.support.written_configuration import as_document

HEAD = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n"


def read(body: str = "", head: str = HEAD) -> LoadedConfiguration:
    return load_text(head + dedent(body), "kueue.yaml")


def place(finding: Finding) -> str:
    return f"{finding.line} {finding.path}: {finding.problem}; {finding.remedy}"


def test_an_empty_configuration_is_kueue_s_defaults() -> None:
    loaded = read()
    assert (loaded.findings, loaded.config) == ((), KueueConfig(wait_for_pods_ready=DEFAULT_READY))


DEFAULT_READY = WaitForPodsReady(recovery_timeout=30 * MINUTE)

POLICIES: Mapping[str, tuple[str, KueueConfig]] = {
    "fair sharing with a strategy of its own": (
        "fairSharing: {preemptionStrategies: [LessThanInitialShare]}",
        KueueConfig(
            fair_sharing=True,
            strategies=(PreemptionStrategy.LESS_THAN_INITIAL_SHARE,),
            wait_for_pods_ready=DEFAULT_READY,
        ),
    ),
    "pods that have to be ready soon": (
        """
        waitForPodsReady:
          timeout: 5m
          recoveryTimeout: 0s
          blockAdmission: true
          requeuingStrategy: {timestamp: Creation, backoffLimitCount: 2, backoffBaseSeconds: 10, backoffMaxSeconds: 80}
        """,
        KueueConfig(
            wait_for_pods_ready=WaitForPodsReady(
                timeout=5 * MINUTE,
                recovery_timeout=0,
                block_admission=True,
                requeuing_strategy=RequeuingStrategy(
                    timestamp="Creation", backoff_limit_count=2, backoff_base_seconds=10, backoff_max_seconds=80
                ),
            )
        ),
    ),
    "the recovery may take as long as the start": (
        "waitForPodsReady: {timeout: 90s}",
        KueueConfig(wait_for_pods_ready=WaitForPodsReady(timeout=90 * SECOND, recovery_timeout=90 * SECOND)),
    ),
    "admission fair sharing": (
        "admissionFairSharing: {usageHalfLifeTime: 10m, resourceWeights: {cpu: 0.5}}",
        KueueConfig(
            wait_for_pods_ready=DEFAULT_READY,
            admission_fair_sharing=AdmissionFairSharing(
                usage_half_life=10 * MINUTE, usage_sampling_interval=5 * MINUTE, resource_weights={"cpu": 0.5}
            ),
        ),
    ),
    "resources": (
        """
        resources:
          quotaCheckStrategy: BlockUndeclared
          excludeResourcePrefixes: [networking.example.com/]
          transformations:
            - input: nvidia.com/mig-1g.5gb
              strategy: Replace
              outputs: {example.com/memory: 5Gi, example.com/units: 10}
            - {input: cpu, multiplyBy: nvidia.com/gpu}
          deviceClassMappings:
            - name: gpu.memory
              deviceClassNames: [mig.nvidia.com]
              sources:
                - counter: {name: memory, driver: gpu.nvidia.com, deviceSelector: {cel: {expression: "true"}}}
        """,
        KueueConfig(
            wait_for_pods_ready=DEFAULT_READY,
            exclude_resource_prefixes=("networking.example.com/",),
            transformations={
                "nvidia.com/mig-1g.5gb": Transformation(
                    input="nvidia.com/mig-1g.5gb",
                    strategy="Replace",
                    outputs={"example.com/memory": "5Gi", "example.com/units": "10"},
                ),
                "cpu": Transformation(input="cpu", multiply_by="nvidia.com/gpu"),
            },
            device_class_mappings=(
                DeviceClassMapping(
                    name="gpu.memory",
                    device_class_names=("mig.nvidia.com",),
                    counters=(CounterSource(name="memory", driver="gpu.nvidia.com", device_selector="true"),),
                ),
            ),
        ),
    ),
    "undeclared resources need no quota": (
        "resources: {quotaCheckStrategy: IgnoreUndeclared}",
        KueueConfig(wait_for_pods_ready=DEFAULT_READY, ignore_undeclared=True),
    ),
    "the strategy of undeclared resources has a gate": (
        "resources: {quotaCheckStrategy: IgnoreUndeclared}\nfeatureGates: {QuotaCheckStrategy: false}",
        KueueConfig(wait_for_pods_ready=DEFAULT_READY, gates={"QuotaCheckStrategy": False}),
    ),
    "gates that differ from their defaults": (
        "featureGates: {PartialAdmission: false, MultiKueue: true}",
        KueueConfig(wait_for_pods_ready=DEFAULT_READY, gates={"PartialAdmission": False}),
    ),
    "what is done with is deleted": (
        "objectRetentionPolicies: {workloads: {afterFinished: 1h, afterDeactivatedByKueue: 0s}}",
        KueueConfig(
            wait_for_pods_ready=DEFAULT_READY,
            object_retention=ObjectRetention(after_finished=60 * MINUTE, after_deactivated_by_kueue=0),
        ),
    ),
}


@pytest.mark.parametrize("name", POLICIES)
def test_a_configuration_is_a_policy(name: str) -> None:
    body, want = POLICIES[name]
    loaded = read(body)
    assert (loaded.findings, loaded.config) == ((), want)


def test_null_is_absent() -> None:
    assert read("waitForPodsReady:\nresources: null\nfeatureGates:\n").config == read().config


WRONG: Mapping[str, tuple[str, list[str]]] = {
    "unknown fields, with the nearest": (
        "waitForPodReady: {}\nresources: {transformation: []}",
        [
            "3 waitForPodReady: unknown field \"waitForPodReady\"; did you mean 'waitForPodsReady'?",
            "4 resources.transformation: unknown field \"resources.transformation\"; did you mean 'transformations'?",
        ],
    ),
    "every wrong type": (
        "namespace: 5\nfairSharing:\n  preemptionStrategies: LessThanInitialShare\nwebhook: {port: x}",
        [
            "3 namespace: Expected `str | null`, got `int`; write a value of that type",
            "5 fairSharing.preemptionStrategies: Expected `array`, got `str`; write a value of that type",
            "6 webhook.port: Expected `int | null`, got `str`; write a value of that type",
        ],
    ),
    "durations that are none": (
        "waitForPodsReady:\n  timeout: 5 minutes\n",
        ['4 waitForPodsReady.timeout: time: invalid duration "5 minutes"; write it as 90s, 30m or 1h30m'],
    ),
    "quantities that are none": (
        "resources:\n  transformations:\n    - input: cpu\n      outputs: {a/b: many}\n",
        [
            "6 resources.transformations[0].outputs[a/b]: 'many' is not a quantity; write it as 8, 500m, 1.5Gi or 2e3",
        ],
    ),
    "values below zero": (
        "waitForPodsReady: {recoveryTimeout: -1ns, requeuingStrategy: {backoffLimitCount: -1}}",
        [
            "3 waitForPodsReady.recoveryTimeout: '-1ns' is not accepted; must be greater than or equal to 0",
            "3 waitForPodsReady.requeuingStrategy.backoffLimitCount: -1 is not accepted; "
            "must be greater than or equal to 0",
        ],
    ),
    "words that the field does not know": (
        "waitForPodsReady: {requeuingStrategy: {timestamp: Now}}\nfairSharing: {preemptionStrategies: [Cats]}",
        [
            "3 waitForPodsReady.requeuingStrategy.timestamp: 'Now' is not supported; "
            'supported values: "Creation", "Eviction"',
            "4 fairSharing.preemptionStrategies: a list is not supported; supported values: "
            '"LessThanInitialShare", "LessThanOrEqualToFinalShare", "LessThanOrEqualToFinalShare,LessThanInitialShare"',
        ],
    ),
    "gates": (
        "featureGates:\n  PartialAdmision: true\n  TASBalancedPlacement: true\n  TopologyAwareScheduling: false\n"
        "  TASProfileMixed: false\n  TASHandleOverlappingFlavors: false\n  TASFailedNodeReplacement: false\n"
        "  TASFailedNodeReplacementFailFast: false\n  TASReplaceNodeOnPodTermination: false\n"
        "  TASReplaceNodeOnNodeTaints: false\n  TASMultiLayerTopology: false\n"
        "  TASRecomputeAssignmentWithinSchedulingCycle: false\n",
        [
            "4 featureGates.PartialAdmision: unrecognized feature gate: PartialAdmision; "
            "did you mean PartialAdmission?",
            "3 featureGates: TASBalancedPlacement requires TopologyAwareScheduling to be enabled; "
            "turn the one on, or the other off",
        ],
    ),
    "what stands twice": (
        "resources:\n  transformations:\n    - {input: cpu}\n    - {input: cpu}\n",
        ["6 resources.transformations[1].input: 'cpu' stands twice; drop or rename one of them"],
    ),
    "weights below zero": (
        "admissionFairSharing: {resourceWeights: {nvidia.com/gpu: -1}}",
        [
            "3 admissionFairSharing.resourceWeights[nvidia.com/gpu]: -1 is not accepted; "
            "must be greater than or equal to 0",
        ],
    ),
    "expressions that are no CEL": (
        "resources:\n  deviceClassMappings:\n  - name: a\n    deviceClassNames: [b]\n    sources:\n"
        "    - counter: {name: c, driver: d, deviceSelector: {cel: {expression: cats}}}\n",
        [
            "8 resources.deviceClassMappings[0].sources[0].counter.deviceSelector.cel.expression: 'cats' is not "
            "accepted; CEL compilation failed: compilation failed: ERROR: <input>:1:1: undeclared reference to 'cats' "
            "(in container '')\ufffd | cats\ufffd | ^",
        ],
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_kueue_would_not_take_is_said_with_its_line(name: str) -> None:
    body, want = WRONG[name]
    loaded = read(body)
    assert (loaded.config, list(map(place, loaded.findings))) == (None, want)


def test_the_older_version_says_what_is_enabled() -> None:
    old = HEAD.replace("v1beta2", "v1beta1")
    body = """
    fairSharing: {enable: true}
    waitForPodsReady: {enable: true}
    queueVisibility: {updateIntervalSeconds: 5}
    integrations: {frameworks: [pod], podOptions: {}}
    """
    loaded = read(body, old)
    assert [(finding.severity, finding.path) for finding in loaded.findings] == [
        (Severity.NOTE, "queueVisibility"),
        (Severity.NOTE, "integrations.podOptions"),
    ]
    ready = WaitForPodsReady(timeout=5 * MINUTE, recovery_timeout=5 * MINUTE, block_admission=True)
    assert loaded.config == KueueConfig(fair_sharing=True, wait_for_pods_ready=ready)
    off = read("fairSharing: {enable: false, preemptionStrategies: [LessThanInitialShare]}", old)
    assert off.config == read().config


def test_the_configuration_is_found_in_what_kueue_is_installed_with() -> None:
    installed = """
    apiVersion: v1
    kind: Namespace
    metadata: {name: kueue-system}
    ---
    apiVersion: v1
    kind: ConfigMap
    metadata: {name: kueue-manager-config}
    data:
      controller_manager_config.yaml: |
        apiVersion: config.kueue.x-k8s.io/v1beta2
        kind: Configuration
        fairSharing: {preemptionStrategies: []}
    """
    loaded = read(installed, "")
    want = ["13 fairSharing.preemptionStrategies: it is missing; must be specified"]
    assert list(map(place, loaded.findings)) == want


def test_clusters_are_found_by_profiles_only_where_these_are_defined() -> None:
    body = "namespace: kueue-a\nmultiKueue: {clusterProfile: {accessProviders: []}}\n"
    crd = "---\nkind: CustomResourceDefinition\nmetadata: {name: clusterprofiles.multicluster.x-k8s.io}\n"
    assert (read(body).profile_namespaces, read(body + crd).profile_namespaces) == ((), ("kueue-a",))
    assert [finding.code for finding in read(body).findings] == ["no-crd"]


FILES: Mapping[str, tuple[str, str]] = {
    "no Configuration": (
        "apiVersion: v1\nkind: Namespace\n",
        "1 : it holds no Configuration of Kueue; "
        "a Configuration begins with apiVersion: config.kueue.x-k8s.io/v1beta2 and kind: Configuration",
    ),
    "two of them": (f"{HEAD}---\n{HEAD}", "1 : it holds 2 Configurations; give one at a time"),
    "an unknown version": (
        HEAD.replace("v1beta2", "v1"),
        "1 apiVersion: 'config.kueue.x-k8s.io/v1' is not known; write apiVersion: config.kueue.x-k8s.io/v1beta2",
    ),
}


@pytest.mark.parametrize("name", FILES)
def test_a_file_holds_one_configuration(name: str) -> None:
    text, want = FILES[name]
    loaded = load_text(text, "kueue.yaml")
    assert (loaded.config, list(map(place, loaded.findings))) == (None, [want])


def test_what_is_written_can_be_read_again() -> None:
    import json

    configuration = read("waitForPodsReady: {timeout: 5m}\nmultiKueue: {origin: a}").configuration
    assert configuration is not None
    again = load_text(json.dumps(as_document(configuration)), "again.json")
    assert (again.findings, again.configuration) == ((), configuration)


DURATIONS: Mapping[str, tuple[str, int]] = {
    "90s": ("1m30s", 90 * SECOND),
    "1.5h": ("1h30m0s", 90 * MINUTE),
    "0": ("0s", 0),
    "-1s": ("-1s", -SECOND),
    "1500ms": ("1.5s", 1_500_000),
    "1ns": ("1ns", 1),
    "-1ns": ("-1ns", -1),
    "1h0.5s": ("1h0m0.5s", 3_600_500_000),
    ".5ms": ("500µs", 500),
}


@pytest.mark.parametrize("text", DURATIONS)
def test_durations_are_go_s(text: str) -> None:
    assert (durations.format_duration(durations.nanoseconds(text)), durations.parse_duration(text)) == DURATIONS[text]


@pytest.mark.parametrize("text", ["", "5", "1d", "s", "1 s", "1s ", "--1s", "9" * 101 + "s"])
def test_everything_else_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match="time: invalid duration"):
        durations.parse_duration(text)
