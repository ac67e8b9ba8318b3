"""Storage in files: volumes, claims, classes, limits of nodes, and the claims that pods mount."""

from typing import Any

import yaml

from gpuconsole.model.cluster import CSINode, PersistentVolume, PersistentVolumeClaim, Pod, StorageClass
from gpuconsole.model.labels import NodeTerm, Requirement
from gpuconsole.model.manifests.kinds import decode_object
from gpuconsole.model.pod_template import PodVolume

GI = 1024**3


def _read(text: str) -> Any:
    return decode_object(yaml.safe_load(text))


def test_a_volume_says_how_much_it_holds_who_has_it_and_which_nodes_reach_it() -> None:
    volume = _read("""
        apiVersion: v1
        kind: PersistentVolume
        metadata: {name: pv-1, labels: {topology.kubernetes.io/zone: a}}
        spec:
          capacity: {storage: 2Gi}
          storageClassName: fast
          accessModes: [ReadWriteOnce]
          claimRef: {namespace: research, name: data}
          csi: {driver: ebs.csi.aws.com, volumeHandle: vol-1}
          nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: zone, operator: In, values: [a]}]}]}}
    """)
    assert volume == PersistentVolume(
        name="pv-1",
        labels={"topology.kubernetes.io/zone": "a"},
        storage=2 * GI,
        storage_class="fast",
        access_modes=("ReadWriteOnce",),
        node_affinity=(NodeTerm((Requirement("zone", "In", ("a",)),)),),
        claim="research/data",
        phase="Bound",
        driver="ebs.csi.aws.com",
        handle="vol-1",
    )


def test_a_claim_is_bound_where_its_annotation_says_so() -> None:
    claim = _read("""
        apiVersion: v1
        kind: PersistentVolumeClaim
        metadata: {name: data, namespace: research, annotations: {pv.kubernetes.io/bind-completed: "yes"}}
        spec: {volumeName: pv-1, storageClassName: "", resources: {requests: {storage: 1Gi}}}
    """)
    expected = PersistentVolumeClaim(
        namespace="research", name="data", storage_class="", storage=GI, volume="pv-1", bound=True
    )
    assert claim == expected


def test_a_class_says_when_its_claims_are_bound_and_where_volumes_may_be_made() -> None:
    found = _read("""
        apiVersion: storage.k8s.io/v1
        kind: StorageClass
        metadata: {name: zonal, annotations: {storageclass.kubernetes.io/is-default-class: "true"}}
        provisioner: ebs.csi.aws.com
        volumeBindingMode: WaitForFirstConsumer
        allowedTopologies: [{matchLabelExpressions: [{key: zone, values: [a, b]}]}]
    """)
    topologies = ((Requirement("zone", "In", ("a", "b")),),)
    provisioner = "ebs.csi.aws.com"
    assert found == StorageClass(name="zonal", provisioner=provisioner, waits=True, topologies=topologies, default=True)


def test_a_csi_node_limits_those_drivers_that_count() -> None:
    found = _read("""
        apiVersion: storage.k8s.io/v1
        kind: CSINode
        metadata: {name: n1}
        spec: {drivers: [{name: ebs.csi.aws.com, nodeID: i-1, allocatable: {count: 25}}, {name: efs, nodeID: i-1}]}
    """)
    assert found == CSINode(name="n1", limits={"ebs.csi.aws.com": 25})


def test_a_pod_mounts_claims_that_it_names_and_claims_of_its_own() -> None:
    pod = _read("""
        apiVersion: v1
        kind: Pod
        metadata: {name: p}
        spec:
          containers: [{name: main}]
          volumes:
          - {name: data, persistentVolumeClaim: {claimName: shared}}
          - name: scratch
            ephemeral:
              volumeClaimTemplate:
                spec: {storageClassName: fast, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
          - {name: tmp, emptyDir: {}}
    """)
    assert isinstance(pod, Pod)
    assert pod.template.volumes == (
        PodVolume(name="data", claim="shared"),
        PodVolume(name="scratch", storage_class="fast", storage=GI, access_modes=("ReadWriteOnce",)),
    )
