"""trainer.kubeflow.org: TrainJob, and the TrainingRuntime or ClusterTrainingRuntime that defines its pods."""

from collections.abc import Iterator

from gpuconsole.model.clock import SECOND, Time
from gpuconsole.model.documents.amounts import resources
from gpuconsole.model.documents.metadata import metadata, spec_of
from gpuconsole.model.documents.reader import Reader
from gpuconsole.model.documents.selectors import tolerations
from gpuconsole.model.job import Job
from gpuconsole.model.job_rules import PodPatch, TrainRules
from gpuconsole.model.jobs.batch import replicated_jobs
from gpuconsole.model.jobs.common import job, phase
from gpuconsole.model.jobs.trainjob_pods import with_runtime_pods
from gpuconsole.model.resources import EMPTY
from gpuconsole.model.training_runtimes import CLUSTER_WIDE, SHIPPED, TrainingRuntime

ANCESTOR = "trainer.kubeflow.org/trainjob-ancestor-step"
TRAINER = "trainer"
_KINDS = ("TrainingRuntime", CLUSTER_WIDE)
_FIELDS = (
    *("activeDeadlineSeconds", "annotations", "datasetConfig", "initializer", "labels", "managedBy", "modelConfig"),
    *("podSpecOverrides", "podTemplateOverrides", "runtimePatches", "runtimeRef", "suspend", "trainer"),
)
_TRAINER_FIELDS = ("args", "command", "env", "image", "numNodes", "numProcPerNode", "resourcesPerNode")


def train_job(reader: Reader, now: Time) -> Job:
    """Read a TrainJob; it has pod sets only if it uses a runtime that the trainer ships, until its own is known."""
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
