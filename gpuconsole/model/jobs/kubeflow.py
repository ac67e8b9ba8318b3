"""kubeflow.org jobs: PyTorchJob, TFJob, XGBoostJob, PaddleJob, JAXJob and MPIJob, with one pod set per replica type."""

from collections.abc import Callable

from msgspec import Struct
from msgspec.structs import replace

from gpuconsole.model.clock import SECOND, Span, Time
from gpuconsole.model.documents.reader import Reader
from gpuconsole.model.job import Job
from gpuconsole.model.job_rules import LaunchRules
from gpuconsole.model.jobs.common import job, phase, pod_set, pods
from gpuconsole.model.pod_sets import PodSet

REPLICA_INDEX = "training.kubeflow.org/replica-index"
_RESTARTS = ("Always", "OnFailure", "Never", "ExitCode")


class Replicas(Struct, frozen=True, kw_only=True):
    """Replica types of one kind (Kueue 0.19 OrderedReplicaTypes), and which of them decide its success."""

    kind: str
    field: str
    types: tuple[str, ...]
    fields: tuple[str, ...] = ()
    """Other fields of its spec."""
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
    """Return the reader for one kind."""

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
        ttl=_seconds(policy, "ttlSecondsAfterFinished"),
        deadline=_seconds(policy, "activeDeadlineSeconds"),
    )
    return None if rules == LaunchRules() else rules


def _seconds(place: Reader, key: str) -> Span | None:
    seconds = place.optional(key, low=0)
    return None if seconds is None else seconds * SECOND


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
