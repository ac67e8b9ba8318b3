"""Kubeflow's jobs: PyTorchJob and the other kinds of v1, and TrainJob with its runtimes.

The kinds of kubeflow.org (PyTorchJob, TFJob, XGBoostJob, PaddleJob, JAXJob, MPIJob) have one pod set per replica type.
The pods of a TrainJob (trainer.kubeflow.org) are defined by its TrainingRuntime or ClusterTrainingRuntime and its own
changes to them (Kubeflow trainer 2.2 runtime core, jobset builder).
"""

from collections.abc import Callable, Iterator

from msgspec import Struct
from msgspec.structs import replace

from gpuconsole.model.clock import SECOND, Time
from gpuconsole.model.documents.metadata import metadata, spec_of
from gpuconsole.model.documents.pods_and_selectors import tolerations
from gpuconsole.model.documents.reader import Reader, resources
from gpuconsole.model.job import (
    CLUSTER_WIDE,
    LAUNCHER,
    NODE,
    SHIPPED,
    Job,
    LaunchRules,
    PodPatch,
    TrainingRuntime,
    TrainRules,
)
from gpuconsole.model.jobs.batch import replicated_jobs
from gpuconsole.model.jobs.common import job, phase, pod_set, pods, seconds
from gpuconsole.model.pod_template import Container, PodSet, PodTemplate
from gpuconsole.model.resources import EMPTY

REPLICA_INDEX = "training.kubeflow.org/replica-index"
_RESTARTS = ("Always", "OnFailure", "Never", "ExitCode")


class Replicas(Struct, frozen=True, kw_only=True):
    """Replica types of one kind of Kubeflow job (Kueue 0.19 OrderedReplicaTypes), and which decide its success."""

    kind: str
    field: str
    types: tuple[str, ...]
    fields: tuple[str, ...] = ()
    """Fields of the kind's spec beside `field` and runPolicy."""
    single: tuple[str, ...] = ()
    """Types with at most one replica."""
    needed: tuple[str, ...] = ()
    deciders: tuple[str, ...] = ()
    """The first of these types that exists decides how the job ends; without one, all replicas do."""


PYTORCH = Replicas(
    kind="PyTorchJob",
    field="pytorchReplicaSpecs",
    types=("Master", "Worker"),
    fields=("elasticPolicy", "nprocPerNode"),
    single=("Master",),
)
TENSORFLOW = Replicas(
    kind="TFJob",
    field="tfReplicaSpecs",
    types=("Chief", "Master", "PS", "Worker", "Evaluator"),
    fields=("enableDynamicWorker", "successPolicy"),
    single=("Chief", "Master"),
    deciders=("Chief", "Master", "Worker"),
)
XGBOOST = Replicas(
    kind="XGBoostJob", field="xgbReplicaSpecs", types=("Master", "Worker"), single=("Master",), needed=("Master",)
)
PADDLE = Replicas(kind="PaddleJob", field="paddleReplicaSpecs", types=("Master", "Worker"), fields=("elasticPolicy",))
JAX = Replicas(kind="JAXJob", field="jaxReplicaSpecs", types=("Worker",), needed=("Worker",))
MPI = Replicas(
    kind="MPIJob",
    field="mpiReplicaSpecs",
    types=("Launcher", "Worker"),
    fields=(
        *("cleanPodPolicy", "launcherCreationPolicy", "mainContainer", "mpiImplementation", "runLauncherAsWorker"),
        *("slotsPerWorker", "sshAuthMountPath"),
    ),
    single=("Launcher",),
    needed=("Launcher",),
    deciders=("Launcher",),
)
ALL = (PYTORCH, TENSORFLOW, XGBOOST, PADDLE, JAX, MPI)


def decoder(replicas: Replicas) -> Callable[[Reader, Time], Job]:
    """Return the function that reads jobs of the kind with these replica types."""

    def decode(reader: Reader, now: Time) -> Job:
        return _kubeflow_job(reader, now, replicas)

    return decode


def _kubeflow_job(reader: Reader, now: Time, kind: Replicas) -> Job:
    """Read a job of any of these kinds; schedulingPolicy.minAvailable is the size of its gang."""
    spec = reader.mapping("spec")
    spec.only(kind.field, "runPolicy", *kind.fields)
    place, policy = spec.mapping(kind.field), spec.mapping("runPolicy")
    place.only(*kind.types)
    scheduling = policy.mapping("schedulingPolicy")
    suspended = policy.flag("suspend")
    found = tuple(_replica(place, kind, type) for type in kind.types if type in place)
    _check_needed(place, kind)
    return job(
        reader,
        now,
        kind.kind,
        with_priority_class(found, scheduling.text("priorityClass")),
        rules=_rules(place, policy, kind),
        min_available=scheduling.optional("minAvailable", low=0),
        suspended=suspended,
        backoff_limit=policy.number("backoffLimit", 6, low=0),
        phase=phase(reader, suspended),
    )


def _check_needed(place: Reader, kind: Replicas) -> None:
    if not any(type in place for type in kind.types):
        types = " or a ".join(kind.types)
        place.report.refused(place.path, f"{kind.field} is empty", f"give it a {types}", "required")
        return
    for type in kind.needed:
        if type not in place:
            problem = f"must have {type} replica specs"
            place.report.refused(place.at(type), problem, f"give it a {type}", "required")


def _rules(place: Reader, policy: Reader, kind: Replicas) -> LaunchRules | None:
    decider = next((type.lower() for type in kind.deciders if type in place), "")
    rules = LaunchRules(
        deciders=(decider,) if decider else (),
        ttl=seconds(policy, "ttlSecondsAfterFinished"),
        deadline=seconds(policy, "activeDeadlineSeconds"),
    )
    return None if rules == LaunchRules() else rules


def _replica(replicas: Reader, kind: Replicas, type: str) -> PodSet:
    place = replicas.mapping(type)
    place.only("replicas", "restartPolicy", "template")
    place.one_of("restartPolicy", "", _RESTARTS)
    count = pods(place, "replicas")
    if type in kind.single and count > 1:
        problem = f"there must be only 1 {type} replica"
        place.report.refused(place.at("replicas"), problem, "write replicas: 1", "bad-replicas")
    return pod_set(place, type, count, index=REPLICA_INDEX)


def with_priority_class(pod_sets: tuple[PodSet, ...], name: str) -> tuple[PodSet, ...]:
    """Set the job's priority class in templates that have none."""
    if not name:
        return pod_sets
    return tuple(
        pods if pods.template.priority_class else replace(pods, template=replace(pods.template, priority_class=name))
        for pods in pod_sets
    )


def with_runtime_pods(job: Job, runtime: TrainingRuntime) -> Job:
    """Return the TrainJob with the pod sets of its runtime and its own changes to them."""
    rules = job.rules
    assert isinstance(rules, TrainRules)
    return replace(job, pod_sets=tuple(_part(pods, rules, runtime) for pods in runtime.pod_sets))


def _part(pods: PodSet, rules: TrainRules, runtime: TrainingRuntime) -> PodSet:
    trains = pods.name in runtime.trainers
    template = pods.template
    for patch in rules.patches:
        if not patch.jobs or pods.name in patch.jobs:
            template = _patched(template, patch)
    if trains or (runtime.launcher_is_node and pods.name == NODE):
        template = replace(template, containers=tuple(_sized(one, rules, trains) for one in template.containers))
    return replace(pods, count=_count(pods, rules, runtime), template=template)


def _count(pods: PodSet, rules: TrainRules, runtime: TrainingRuntime) -> int:
    if runtime.mpi:
        if pods.name != NODE:
            return 1 if pods.name == LAUNCHER else pods.count
        if rules.nodes is None:
            return pods.count
        return max(rules.nodes - 1, 1) if runtime.launcher_is_node else rules.nodes
    if pods.name not in runtime.trainers:
        return pods.count
    if rules.nodes is not None:
        return rules.nodes
    return pods.count if runtime.nodes is None else runtime.nodes


def _sized(container: Container, rules: TrainRules, trains: bool) -> Container:
    """Set the TrainJob's resources in the container that trains, and its image if the pod set is a trainer's."""
    if container.name != NODE:
        return container
    if rules.requests is not None:
        container = replace(container, requests=rules.requests, limits=rules.limits, fractions={})
    return replace(container, image=rules.image) if rules.image and trains else container


def _patched(template: PodTemplate, patch: PodPatch) -> PodTemplate:
    return replace(
        template,
        labels={**template.labels, **patch.labels},
        annotations={**template.annotations, **patch.annotations},
        node_selector={**template.node_selector, **patch.node_selector},
        tolerations=(*template.tolerations, *patch.tolerations),
    )


ANCESTOR = "trainer.kubeflow.org/trainjob-ancestor-step"
"""Label of a job in a runtime with its role in the TrainJob."""
TRAINER = "trainer"
"""Value of that label for a job that trains."""
_KINDS = ("TrainingRuntime", CLUSTER_WIDE)
_FIELDS = (
    *("activeDeadlineSeconds", "annotations", "datasetConfig", "initializer", "labels", "managedBy", "modelConfig"),
    *("podSpecOverrides", "podTemplateOverrides", "runtimePatches", "runtimeRef", "suspend", "trainer"),
)
_TRAINER_FIELDS = ("args", "command", "env", "image", "numNodes", "numProcPerNode", "resourcesPerNode")


def train_job(reader: Reader, now: Time) -> Job:
    """Read a TrainJob. Only one whose runtime the trainer ships has pod sets.

    Others get theirs by `with_runtime_pods`, once the runtime is loaded.
    """
    spec = reader.mapping("spec")
    spec.only(*_FIELDS)
    reference, trainer = spec.mapping("runtimeRef"), spec.mapping("trainer")
    reference.only("apiGroup", "kind", "name")
    trainer.only(*_TRAINER_FIELDS)
    needs = trainer.mapping("resourcesPerNode")
    suspended = spec.flag("suspend")
    deadline = spec.optional("activeDeadlineSeconds", low=1)
    rules = TrainRules(
        kind=reference.one_of("kind", CLUSTER_WIDE, _KINDS),
        runtime=reference.required("name"),
        nodes=trainer.optional("numNodes", low=1),
        image=trainer.text("image", limit=1000),
        requests=resources(needs, "requests") if needs.value else None,
        limits=resources(needs, "limits") if needs.value else EMPTY,
        patches=tuple(_patches(spec)),
        deadline=None if deadline is None else deadline * SECOND,
    )
    state = phase(reader, suspended)
    found = job(reader, now, "TrainJob", (), rules=rules, suspended=suspended, phase=state)
    shipped = SHIPPED.get(rules.runtime) if rules.kind == CLUSTER_WIDE else None
    return found if shipped is None else with_runtime_pods(found, shipped)


def _patches(spec: Reader) -> Iterator[PodPatch]:
    """Yield a TrainJob's changes to its pods, in the form of each version of the API."""
    for manager in spec.items("runtimePatches", 16):
        jobs = manager.down("trainingRuntimeSpec", "template", "spec")
        for patch in jobs.items("replicatedJobs", 100):
            pod = patch.down("template", "spec", "template")
            yield _patch(pod.mapping("metadata"), pod.mapping("spec"), (patch.required("name"),))
    for override in spec.items("podTemplateOverrides", 100):
        yield _patch(override.mapping("metadata"), override.mapping("spec"), _targets(override))
    for override in spec.items("podSpecOverrides", 100):
        yield _patch(override.mapping("metadata"), override, _targets(override))


def _targets(override: Reader) -> tuple[str, ...]:
    return tuple(target.required("name") for target in override.items("targetJobs", 100))


def _patch(meta: Reader, spec: Reader, jobs: tuple[str, ...]) -> PodPatch:
    return PodPatch(
        jobs=jobs,
        labels=meta.labels("labels"),
        annotations=meta.labels("annotations"),
        node_selector=spec.labels("nodeSelector"),
        tolerations=tolerations(spec, "tolerations"),
    )


def training_runtime(reader: Reader, now: Time) -> TrainingRuntime:
    """Read a TrainingRuntime, which TrainJobs of its namespace may use."""
    return _runtime(reader, now, namespaced=True)


def cluster_training_runtime(reader: Reader, now: Time) -> TrainingRuntime:
    """Read a ClusterTrainingRuntime, which every TrainJob may use."""
    return _runtime(reader, now, namespaced=False)


def _runtime(reader: Reader, now: Time, *, namespaced: bool) -> TrainingRuntime:
    meta = metadata(reader, now, namespaced=namespaced)
    spec = spec_of(reader, "mlPolicy", "podGroupPolicy", "template")
    policy, jobs = spec.mapping("mlPolicy"), spec.mapping("template").mapping("spec")
    if "replicatedJobs" not in jobs:
        problem = "template.spec.replicatedJobs is empty: there is nothing to run"
        jobs.report.refused(jobs.at("replicatedJobs"), problem, "add a job", "required")
    return TrainingRuntime(
        namespace=meta.namespace,
        name=meta.name,
        nodes=policy.optional("numNodes", low=1) if "mlPolicy" in spec else None,
        mpi="mpi" in policy,
        launcher_is_node=policy.mapping("mpi").flag("runLauncherAsNode"),
        pod_sets=replicated_jobs(jobs),
        trainers=tuple(
            place.text("name").lower()
            for place in jobs.items("replicatedJobs", 1000)
            if place.down("template", "metadata").labels("labels").get(ANCESTOR, "") == TRAINER
        ),
    )
