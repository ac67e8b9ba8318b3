"""CustomResourceDefinitions for the throw-away cluster.

The projects' own where they lie beside this one; else small ones, which take any field.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any

import yaml
from msgspec import Struct

from tests.support.shared_material import SHARED

CRDS = SHARED / "crds" if SHARED is not None else None
_NAME = re.compile(rb"^  name: (\S+)$", re.MULTILINE)


class Kind(Struct, frozen=True):
    """A kind that a small definition is made for."""

    project: str
    group: str
    kind: str
    plural: str
    versions: tuple[str, ...]
    """The last one is stored."""
    namespaced: bool = True


_KUEUE = ("v1beta1", "v1beta2")
KINDS = (
    Kind("kueue", "kueue.x-k8s.io", "AdmissionCheck", "admissionchecks", _KUEUE, False),
    Kind("kueue", "kueue.x-k8s.io", "ClusterQueue", "clusterqueues", _KUEUE, False),
    Kind("kueue", "kueue.x-k8s.io", "Cohort", "cohorts", _KUEUE, False),
    Kind("kueue", "kueue.x-k8s.io", "LocalQueue", "localqueues", _KUEUE),
    Kind("kueue", "kueue.x-k8s.io", "MultiKueueCluster", "multikueueclusters", _KUEUE, False),
    Kind("kueue", "kueue.x-k8s.io", "MultiKueueConfig", "multikueueconfigs", _KUEUE, False),
    Kind("kueue", "kueue.x-k8s.io", "ProvisioningRequestConfig", "provisioningrequestconfigs", _KUEUE, False),
    Kind("kueue", "kueue.x-k8s.io", "ResourceFlavor", "resourceflavors", _KUEUE, False),
    Kind("kueue", "kueue.x-k8s.io", "Topology", "topologies", _KUEUE, False),
    Kind("kueue", "kueue.x-k8s.io", "WorkloadPriorityClass", "workloadpriorityclasses", _KUEUE, False),
    Kind("kueue", "kueue.x-k8s.io", "Workload", "workloads", _KUEUE),
    Kind("volcano", "batch.volcano.sh", "Job", "jobs", ("v1alpha1",)),
    Kind("volcano", "bus.volcano.sh", "Command", "commands", ("v1alpha1",)),
    Kind("volcano", "scheduling.volcano.sh", "PodGroup", "podgroups", ("v1beta1",)),
    Kind("volcano", "scheduling.volcano.sh", "Queue", "queues", ("v1beta1",), False),
    Kind("volcano", "topology.volcano.sh", "HyperNode", "hypernodes", ("v1alpha1",), False),
    Kind("jobset", "jobset.x-k8s.io", "JobSet", "jobsets", ("v1alpha2",)),
    Kind("kubeflow", "kubeflow.org", "PyTorchJob", "pytorchjobs", ("v1",)),
    Kind("ray", "ray.io", "RayJob", "rayjobs", ("v1",)),
    Kind("kai", "scheduling.run.ai", "Queue", "queues", ("v2",), False),
    Kind("kai", "scheduling.run.ai", "PodGroup", "podgroups", ("v2alpha2",)),
    Kind("karpenter", "karpenter.sh", "NodePool", "nodepools", ("v1",), False),
)
PROJECTS = tuple(dict.fromkeys(kind.project for kind in KINDS))


def definitions(projects: Sequence[str]) -> Iterator[tuple[str, bytes]]:
    """Name and YAML of every definition of these projects.

    Kueue's conversion webhook is no part of them: what is stored as v1beta2 is shown as v1beta1 unchanged.
    """
    for project in projects:
        if CRDS is not None and (CRDS / project).is_dir():
            for path in sorted((CRDS / project).glob("*.yaml")):
                text = path.read_bytes()
                yield _NAME.findall(text)[0].decode(), text
        else:
            for kind in KINDS:
                if kind.project == project:
                    yield f"{kind.plural}.{kind.group}", yaml.safe_dump(_small(kind)).encode()


def _small(kind: Kind) -> dict[str, Any]:
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    schema = {"type": "object", "properties": {"spec": anything, "status": anything}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{kind.plural}.{kind.group}"},
        "spec": {
            "group": kind.group,
            "names": {"kind": kind.kind, "plural": kind.plural, "singular": kind.kind.lower()},
            "scope": "Namespaced" if kind.namespaced else "Cluster",
            "versions": [
                {
                    "name": version,
                    "served": True,
                    "storage": version == kind.versions[-1],
                    "subresources": {"status": {}},
                    "schema": {
                        "openAPIV3Schema": schema | {"x-kubernetes-preserve-unknown-fields": True},
                    },
                }
                for version in kind.versions
            ],
        },
    }
