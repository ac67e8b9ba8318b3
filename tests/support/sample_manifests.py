"""One valid manifest of each kind that is read; together they fit, and nothing is to be said about them."""

from copy import deepcopy
from typing import Any

from gpuconsole.model.documents.findings import Key
from gpuconsole.model.documents.yaml_json import read_yaml, sections
from gpuconsole.model.manifests import Severity, load_text

TEXT = """
apiVersion: v1
kind: Namespace
metadata: {name: team, labels: {tier: research}}
---
apiVersion: v1
kind: LimitRange
metadata: {name: limits, namespace: team}
spec: {limits: [{type: Container, default: {cpu: "2"}, defaultRequest: {cpu: "1"}, max: {cpu: "64"}}]}
---
apiVersion: node.k8s.io/v1
kind: RuntimeClass
metadata: {name: sandboxed}
handler: kata
overhead: {podFixed: {cpu: 250m, memory: 160Mi}}
---
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: training}
value: 1000
preemptionPolicy: Never
description: training
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: WorkloadPriorityClass
metadata: {name: urgent}
value: 10000
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: Topology
metadata: {name: racks}
spec: {levels: [{nodeLabel: cloud/rack}, {nodeLabel: kubernetes.io/hostname}]}
---
apiVersion: v1
kind: Node
metadata: {name: node-0, labels: {pool: a100, cloud/rack: r0}}
spec: {taints: [{key: nvidia.com/gpu, value: present, effect: NoSchedule}], unschedulable: true}
status:
  allocatable: {cpu: 96, memory: 1Ti, pods: 110, nvidia.com/gpu: 8, nvidia.com/mig-1g.10gb: 7}
  conditions: [{type: Ready, status: "False"}]
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: a100}
spec:
  nodeLabels: {pool: a100}
  nodeTaints: [{key: nvidia.com/gpu, value: present, effect: NoSchedule}]
  tolerations: [{key: nvidia.com/gpu, operator: Exists}]
  topologyName: racks
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: AdmissionCheck
metadata: {name: provision}
spec:
  controllerName: kueue.x-k8s.io/provisioning-request
  parameters: {apiGroup: kueue.x-k8s.io, kind: ProvisioningRequestConfig, name: config}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: Cohort
metadata: {name: org}
spec:
  fairSharing: {weight: "2"}
  resourceGroups:
  - {coveredResources: [nvidia.com/gpu], flavors: [{name: a100, resources: [{name: nvidia.com/gpu, nominalQuota: 4}]}]}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: Cohort
metadata: {name: research}
spec: {parentName: org}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: cq}
spec:
  cohortName: research
  namespaceSelector: {matchLabels: {tier: research}}
  queueingStrategy: StrictFIFO
  resourceGroups:
  - coveredResources: [cpu, nvidia.com/gpu]
    flavors:
    - name: a100
      resources:
      - {name: cpu, nominalQuota: 1500m}
      - {name: nvidia.com/gpu, nominalQuota: 8, borrowingLimit: 4, lendingLimit: 2}
  flavorFungibility: {whenCanBorrow: TryNextFlavor, whenCanPreempt: TryNextFlavor, preference: PreemptionOverBorrowing}
  preemption:
    withinClusterQueue: LowerOrNewerEqualPriority
    reclaimWithinCohort: Any
    borrowWithinCohort: {policy: LowerPriority, maxPriorityThreshold: 100}
  admissionChecksStrategy: {admissionChecks: [{name: provision, onFlavors: [a100]}]}
  stopPolicy: Hold
  fairSharing: {weight: 500m}
  admissionScope: {admissionMode: UsageBasedAdmissionFairSharing}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: lq, namespace: team}
spec: {clusterQueue: cq, stopPolicy: HoldAndDrain, fairSharing: {weight: 3}}
---
apiVersion: scheduling.volcano.sh/v1beta1
kind: Queue
metadata: {name: ml}
spec: {weight: 4, parent: root, capability: {nvidia.com/gpu: 16}, deserved: {nvidia.com/gpu: 8}, reclaimable: false}
---
apiVersion: scheduling.volcano.sh/v1beta1
kind: PodGroup
metadata: {name: gang, namespace: team}
spec: {minMember: 4, queue: ml, priorityClassName: training, minResources: {nvidia.com/gpu: 4}}
---
apiVersion: scheduling.x-k8s.io/v1alpha1
kind: PodGroup
metadata: {name: crew, namespace: team}
spec: {minMember: 2, scheduleTimeoutSeconds: 10}
---
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: gpus}
spec:
  template:
    metadata: {labels: {pool: a100}}
    spec:
      nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}
      requirements: [{key: karpenter.sh/capacity-type, operator: In, values: [spot]}]
      taints: [{key: nvidia.com/gpu, value: present, effect: NoSchedule}]
      expireAfter: 48h
  limits: {nvidia.com/gpu: 16}
  weight: 10
  disruption:
    consolidationPolicy: WhenEmpty
    consolidateAfter: 30s
    budgets: [{nodes: 20%}, {nodes: "0", reasons: [Drifted], schedule: 0 9 * * mon-fri, duration: 8h}]
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: keep, namespace: team}
spec: {selector: {matchLabels: {app: serve}}, minAvailable: 50%}
---
apiVersion: batch/v1
kind: Job
metadata:
  name: train
  namespace: team
  labels: {kueue.x-k8s.io/queue-name: lq, kueue.x-k8s.io/priority-class: urgent}
  annotations: {gpuconsole.io/duration: 90m, gpuconsole.io/checkpoint-interval: 10m}
spec:
  parallelism: 4
  completions: 8
  backoffLimit: 2
  template:
    spec:
      priorityClassName: training
      restartPolicy: Never
      containers: [{name: c, image: i, resources: {requests: {cpu: 1}, limits: {cpu: 2, nvidia.com/gpu: 1}}}]
---
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata: {name: set, namespace: team, labels: {kueue.x-k8s.io/queue-name: lq}}
spec:
  replicatedJobs:
  - name: driver
    template: {spec: {template: {spec: {restartPolicy: Never, containers: [{name: c}]}}}}
  - name: Workers
    replicas: 2
    template:
      spec:
        parallelism: 3
        completions: 3
        template:
          spec: {restartPolicy: OnFailure, containers: [{name: c, resources: {limits: {nvidia.com/gpu: 1}}}]}
---
apiVersion: ray.io/v1
kind: RayJob
metadata: {name: ray, namespace: team, labels: {kueue.x-k8s.io/queue-name: lq}}
spec:
  shutdownAfterJobFinishes: true
  rayClusterSpec:
    headGroupSpec: {template: {spec: {containers: [{name: head, resources: {limits: {cpu: 2}}}]}}}
    workerGroupSpecs:
    - groupName: GPU
      replicas: 2
      numOfHosts: 2
      template: {spec: {containers: [{name: w, resources: {limits: {nvidia.com/gpu: 8}}}]}}
---
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {name: torch, namespace: team, labels: {kueue.x-k8s.io/queue-name: lq}}
spec:
  runPolicy: {suspend: true, schedulingPolicy: {minAvailable: 4, priorityClass: training}}
  pytorchReplicaSpecs:
    Master: {replicas: 1, template: {spec: {containers: [{name: c, resources: {limits: {nvidia.com/gpu: 1}}}]}}}
    Worker: {replicas: 3, template: {spec: {containers: [{name: c, resources: {limits: {nvidia.com/gpu: 8}}}]}}}
---
apiVersion: batch.volcano.sh/v1alpha1
kind: Job
metadata: {name: volcano, namespace: team}
spec:
  queue: ml
  minAvailable: 3
  maxRetry: 5
  priorityClassName: training
  plugins: {env: [], svc: ["--publish-not-ready-addresses=true"]}
  policies: [{event: PodEvicted, action: RestartJob, timeout: 5m}, {event: PodFailed, action: RestartTask}]
  tasks:
  - {name: master, replicas: 1, template: {spec: {containers: [{name: c, resources: {limits: {nvidia.com/gpu: 1}}}]}}}
  - {name: worker, replicas: 3, template: {spec: {containers: [{name: c, resources: {limits: {nvidia.com/gpu: 8}}}]}}}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: Workload
metadata: {name: work, namespace: team, uid: u-1, creationTimestamp: "2026-01-05T08:00:00Z"}
spec:
  queueName: lq
  priority: 7
  priorityClassRef: {group: kueue.x-k8s.io, kind: WorkloadPriorityClass, name: urgent}
  maximumExecutionTimeSeconds: 60
  podSets:
  - name: main
    count: 4
    minCount: 2
    template: {spec: {containers: [{name: c, resources: {requests: {nvidia.com/gpu: 2}}}]}}
    topologyRequest: {required: cloud/rack}
---
apiVersion: v1
kind: Pod
metadata: {name: alone, namespace: team}
spec:
  containers: [{name: c, resources: {limits: {nvidia.com/gpu: 1}}}]
  tolerations: [{operator: Exists}]
"""

DOCUMENTS: dict[str, dict[str, Any]] = {
    f"{document['kind']} {document['metadata']['name']}": document
    for document in (read_yaml(text).value for text, _ in sections(TEXT))
}
"""`Kind name` → document."""

ABSENT = object()
"""Stands for no value at all in `edited`."""


def edited(name: str, path: tuple[Key, ...], value: object) -> dict[str, Any]:
    """A copy of a sample with another value at a path; missing mappings on the way are made."""
    document = deepcopy(DOCUMENTS[name])
    place: Any = document
    for key in path[:-1]:
        place = place.setdefault(key, {}) if isinstance(place, dict) else place[key]
    if value is ABSENT:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    return document


def errors_and_warnings(text: str) -> list[tuple[str, str, str]]:
    """Severity, path and code of what strict reading finds in a text, without notes."""
    findings = load_text(text, "a.yaml", strict=True).findings
    return [(f.severity.value, f.path, f.code) for f in findings if f.severity is not Severity.NOTE]
