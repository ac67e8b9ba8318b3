"""TrainJobs with their runtimes (Kubeflow trainer's webhook and controller)."""

from gpuconsole.model.job import CLUSTER_WIDE, Job, TrainingRuntime, TrainRules
from gpuconsole.model.jobs.kubeflow import with_runtime_pods
from gpuconsole.sim.controllers.refusals import DONE, Refusal
from gpuconsole.sim.world import World


def with_runtime(world: World, job: Job) -> Job:
    """A TrainJob with the pods of its runtime; any other job is unchanged."""
    runtime = _runtime(world, job, job.rules) if isinstance(job.rules, TrainRules) else None
    return job if runtime is None else with_runtime_pods(job, runtime)


def missing_runtime(world: World, job: Job) -> Refusal:
    """Why a TrainJob cannot be created: its runtime does not exist."""
    rules = job.rules
    if not isinstance(rules, TrainRules) or job.pod_sets or _runtime(world, job, rules) is not None:
        return DONE
    kind = rules.kind[0].lower() + rules.kind[1:]
    said = f"specified {kind} must be created before the TrainJob is created"
    return f"spec.runtimeRef: {rules.runtime} not found: {said}"


def _runtime(world: World, job: Job, rules: TrainRules) -> TrainingRuntime | None:
    key = rules.runtime if rules.kind == CLUSTER_WIDE else f"{job.namespace}/{rules.runtime}"
    found: TrainingRuntime | None = world.state.get(TrainingRuntime, key)
    return found
