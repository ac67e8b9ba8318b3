"""Manifests of dynamic resource allocation: device classes, claims, and what drivers publish."""

import pytest

from gpuconsole.model.devices import (
    CapacityPolicy,
    Device,
    DeviceCapacity,
    DeviceClass,
    DeviceRequest,
    ResourceClaim,
    ResourceClaimTemplate,
    ResourceSlice,
    Version,
)
from gpuconsole.model.manifests import load_text
from gpuconsole.model.objects import Object
from gpuconsole.model.pod_template import PodClaim
from gpuconsole.model.workloads import Workload

HEAD = "apiVersion: resource.k8s.io/v1\n"
READ: dict[str, tuple[str, Object]] = {
    "a class with selectors": (
        """
kind: DeviceClass
metadata: {name: gpu.example.com}
spec:
  selectors: [{cel: {expression: "device.driver == 'gpu.example.com'"}}]
  extendedResourceName: example.com/gpu
""",
        DeviceClass(
            name="gpu.example.com",
            selectors=("device.driver == 'gpu.example.com'",),
            extended_resource="example.com/gpu",
        ),
    ),
    "a template whose request leaves the defaults open": (
        """
kind: ResourceClaimTemplate
metadata: {name: one, namespace: ml}
spec: {spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu.example.com}}]}}}
""",
        ResourceClaimTemplate(
            namespace="ml", name="one", requests=(DeviceRequest(name="gpu", device_class="gpu.example.com"),)
        ),
    ),
    "a claim that asks for much": (
        """
kind: ResourceClaim
metadata: {name: shared}
spec:
  devices:
    requests:
    - name: all
      exactly: {deviceClassName: a, allocationMode: All, adminAccess: true}
    - name: some
      exactly: {deviceClassName: b, count: 2, capacity: {requests: {memory: 10Gi}}}
    - name: any
      firstAvailable: [{name: x, deviceClassName: a}]
""",
        ResourceClaim(
            namespace="default",
            name="shared",
            requests=(
                DeviceRequest(name="all", device_class="a", mode="All", admin_access=True),
                DeviceRequest(name="some", device_class="b", count=2, capacity={"memory": 10 * 2**30}),
                DeviceRequest(
                    name="any",
                    exactly=False,
                    alternatives=True,
                    options=(DeviceRequest(name="x", device_class="a"),),
                ),
            ),
        ),
    ),
    "what a driver publishes": (
        """
kind: ResourceSlice
metadata: {name: node-1}
spec:
  driver: gpu.example.com
  nodeName: node-1
  pool: {name: node-1, generation: 3, resourceSliceCount: 2}
  sharedCounters: [{name: gpu-0, counters: {memory: {value: 80Gi}}}]
  devices:
  - name: gpu-0-part
    attributes:
      profile: {string: 1g.10gb}
      index: {int: 4}
      healthy: {bool: true}
      driverVersion: {version: 550.54.15}
      odd: {}
    capacity:
      memory:
        value: 10Gi
        requestPolicy: {default: 1Gi, validValues: [1Gi, 2Gi]}
      bandwidth:
        value: 1k
        requestPolicy: {validRange: {min: 1, max: 500, step: 10}}
    consumesCounters: [{counterSet: gpu-0, counters: {memory: {value: 9856Mi}}}]
""",
        ResourceSlice(
            name="node-1",
            driver="gpu.example.com",
            pool="node-1",
            generation=3,
            pool_slices=2,
            devices=(
                Device(
                    name="gpu-0-part",
                    attributes={
                        "profile": "1g.10gb",
                        "index": 4,
                        "healthy": True,
                        "driverVersion": Version("550.54.15"),
                        "odd": None,
                    },
                    capacity={
                        "memory": DeviceCapacity(10 * 2**30, CapacityPolicy(default=2**30, values=(2**30, 2**31))),
                        "bandwidth": DeviceCapacity(1000, CapacityPolicy(least=1, most=500, step=10)),
                    },
                    counters=({"memory": 9856 * 2**20},),
                    counter_sets=("gpu-0",),
                ),
            ),
            node="node-1",
            counter_sets={"gpu-0": {"memory": 80 * 2**30}},
        ),
    ),
}


@pytest.mark.parametrize(("text", "want"), READ.values(), ids=READ)
def test_devices_are_read(text: str, want: Object) -> None:
    loaded = load_text(HEAD + text.lstrip())
    assert loaded.objects == (want,)
    assert [finding.code for finding in loaded.findings] == []


WORKLOAD = """
apiVersion: kueue.x-k8s.io/v1beta2
kind: Workload
metadata: {name: w, namespace: ml}
spec:
  queueName: lq
  podSets:
  - name: main
    count: 1
    template:
      spec:
        containers:
        - name: c
          resources: {requests: {example.com/gpu: 1500m, cpu: 500m, example.com/nic: 2}}
        resourceClaims:
        - {name: own, resourceClaimTemplateName: one}
        - {name: shared, resourceClaimName: shared}
"""


def test_a_pod_names_its_claims_and_half_devices_are_remembered() -> None:
    (workload,) = load_text(WORKLOAD).objects
    assert isinstance(workload, Workload)
    template = workload.pod_sets[0].template
    assert template.resource_claims == (PodClaim("own", "one"), PodClaim("shared", claim="shared"))
    assert template.containers[0].requests == {"example.com/gpu": 2, "cpu": 500, "example.com/nic": 2}
    assert template.containers[0].fractions == {"example.com/gpu": "1500m"}


def test_hostile_devices_are_cut_and_cleaned() -> None:
    devices = ", ".join(f"{{name: d{number}}}" for number in range(200))
    spec = f'{{driver: "d\\x1b[31m", pool: {{name: p}}, devices: [{devices}]}}'
    loaded = load_text(f"{HEAD}kind: ResourceSlice\nmetadata: {{name: n}}\nspec: {spec}")
    (part,) = loaded.objects
    assert isinstance(part, ResourceSlice)
    assert (part.driver, len(part.devices)) == ("d\N{REPLACEMENT CHARACTER}[31m", 128)
    assert "too-many" in [finding.code for finding in loaded.findings]
