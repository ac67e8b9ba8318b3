"""HAMi's vGPUs under Kueue: shares of each vGPU count as totals, by the transformations that Kueue documents."""

import json
from pathlib import Path
from typing import Any

import pytest

from gpuconsole.model.manifests import decode_object
from gpuconsole.model.queues import ClusterQueue
from gpuconsole.scheduling.kueue.config import Transformation, hami_transformations
from tests.support.command_line import Line
from tests.support.sample_manifests import DOCUMENTS

OBJECTS = """
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: vgpus}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: cq}
spec:
  namespaceSelector: {}
  resourceGroups:
  - coveredResources: [nvidia.com/gpu, nvidia.com/total-gpucores, nvidia.com/total-gpumem]
    flavors:
    - name: vgpus
      resources:
      - {name: nvidia.com/gpu, nominalQuota: 20}
      - {name: nvidia.com/total-gpucores, nominalQuota: 600}
      - {name: nvidia.com/total-gpumem, nominalQuota: TOTAL}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: lq, namespace: team}
spec: {clusterQueue: cq}
---
apiVersion: batch/v1
kind: Job
metadata: {name: burn, namespace: team, labels: {kueue.x-k8s.io/queue-name: lq}}
spec:
  template:
    spec:
      restartPolicy: Never
      containers:
      - name: main
        image: x
        resources: {limits: {nvidia.com/gpu: 2, nvidia.com/gpucores: 30, nvidia.com/gpumem: 1024}}
"""
NODE = """---
apiVersion: v1
kind: Node
metadata: {name: n}
status: {allocatable: {cpu: 64, memory: 256Gi, pods: 110, nvidia.com/gpu: 10}}
"""
CONFIGURATION = """---
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
resources:
  transformations:
  - input: nvidia.com/gpucores
    strategy: Replace
    multiplyBy: nvidia.com/gpu
    outputs: {nvidia.com/total-gpucores: "1"}
  - input: nvidia.com/gpumem
    strategy: Replace
    multiplyBy: nvidia.com/gpu
    outputs: {nvidia.com/total-gpumem: "1"}
"""
ASSUMED = (
    "gpuconsole: no Kueue Configuration given; nvidia.com/gpucores and nvidia.com/gpumem are transformed as Kueue "
    "documents it for HAMi (multiplied by nvidia.com/gpu)"
)


def state(gpuconsole: Line, tmp_path: Path, text: str, total: int) -> tuple[str, list[str]]:
    """The state of the one workload after five minutes, and what stderr says of HAMi."""
    file = tmp_path / "hami.yaml"
    file.write_text(text.replace("TOTAL", str(total)))
    result = gpuconsole("simulate", file, "--until", "5m", "-o", "json")
    (workload,) = json.loads(result.out)["workloads"]
    return workload["state"], [line for line in result.err.splitlines() if "HAMi" in line]


@pytest.mark.parametrize("nodes", ["", NODE], ids=["made nodes", "nodes of HAMi's device plugin"])
@pytest.mark.parametrize(("total", "found"), [(2048, "running"), (2047, "pending")])
def test_shares_are_multiplied_by_the_number_of_vgpus(
    gpuconsole: Line, tmp_path: Path, nodes: str, total: int, found: str
) -> None:
    assert state(gpuconsole, tmp_path, OBJECTS + nodes + CONFIGURATION, total) == (found, [])
    assert state(gpuconsole, tmp_path, OBJECTS + nodes, total) == (found, [ASSUMED])


def test_a_configuration_without_transformations_is_taken_at_its_word(gpuconsole: Line, tmp_path: Path) -> None:
    configuration = "---\napiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n"
    assert state(gpuconsole, tmp_path, OBJECTS + configuration, 2048) == ("pending", [])


def test_lint_finds_quotas_of_totals_as_good_as_simulate_does(gpuconsole: Line, tmp_path: Path) -> None:
    file = tmp_path / "hami.yaml"
    file.write_text(OBJECTS.replace("TOTAL", "2048"))
    result = gpuconsole("lint", file)
    assert (result.status, result.lines) == (0, ["0 errors, 0 warnings, 0 notes"])
    assert ASSUMED in result.err


def test_only_totals_that_have_a_quota_count() -> None:
    def queue(*resources: str) -> ClusterQueue:
        document: dict[str, Any] = json.loads(json.dumps(DOCUMENTS["ClusterQueue cq"]))
        entries = [{"name": name, "nominalQuota": 1} for name in resources]
        document["spec"]["resourceGroups"] = [
            {"coveredResources": list(resources), "flavors": [{"name": "a100", "resources": entries}]}
        ]
        found = decode_object(document)
        assert isinstance(found, ClusterQueue)
        return found

    memory = Transformation(
        input="nvidia.com/gpumem",
        strategy="Replace",
        multiply_by="nvidia.com/gpu",
        outputs={"nvidia.com/total-gpumem": "1"},
    )
    assert hami_transformations([queue("nvidia.com/gpu", "nvidia.com/total-gpumem")]) == {memory.input: memory}
    assert hami_transformations([queue("nvidia.com/gpu", "nvidia.com/gpumem")]) == {}
