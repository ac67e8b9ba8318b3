"""Pods that fail by themselves or at their node's door: the job counts it, and makes the pod again after a back-off."""

from msgspec.structs import replace

from gpuconsole.model.cluster import Pod
from gpuconsole.model.gpus.sharing import UNEXPECTED, may_refuse, refusal
from gpuconsole.scheduling.volcano.jobs.requests import request_of_job
from gpuconsole.sim.controllers import endings, nodes
from gpuconsole.sim.controllers.reconcile import backoff
from gpuconsole.sim.controllers.solo import running
from gpuconsole.sim.controllers.volcano import acting
from gpuconsole.sim.crews import crew_key
from gpuconsole.sim.kernel import Restart
from gpuconsole.sim.world import World


def fail_pod(world: World, pod: Pod) -> None:
    """A pod's container exits with an error."""
    _fail(world, pod, "Error", f"pod {pod.name} failed", exit_code=1)


def admit_pod(world: World, key: str) -> None:
    """A kubelet looks at a pod that came to its node; it fails one that asks for more than one shared device."""
    pod = world.pod(key)
    node = None if pod is None else world.node(pod.node)
    if pod is not None and node is not None and may_refuse(node.labels, node.annotations):
        message = refusal(pod.template.requests, node.labels, node.annotations)
        if message:
            _fail(world, pod, UNEXPECTED, message)


def _fail(world: World, pod: Pod, reason: str, message: str, exit_code: int | None = None) -> None:
    nodes.fail_pod(world, pod, reason, message)
    job = world.job(pod.job) if pod.job else None
    if job is not None and job.volcano is not None:
        # What follows is up to the job's policies.
        return
    key = crew_key(pod)
    crew = world.crews.get(key)
    if crew is not None and crew.solo:
        verdict = running.fail(world, pod, exit_code)
        if verdict is not None:
            endings.conclude(world, crew, verdict)
            return
    elif job is not None and not job.endless:
        world.put(replace(job, failures=job.failures + 1))
    counted = world.job(pod.job) if pod.job else None
    failures = max(1, counted.failures if counted is not None else 1)
    crew = world.crews.get(key)
    if crew is not None:
        delay = backoff(failures)
        world.crew(replace(crew, hold=world.now + delay))
        world.kernel.at(world.now + delay, Restart(key))


def restart(world: World, timer: Restart) -> None:
    """A back-off is over."""
    crew = world.crews.get(timer.crew)
    job = world.job(crew.job) if crew is not None and crew.job else None
    if job is not None and job.volcano is not None:
        acting.ask(world, request_of_job(job))
    if crew is not None:
        world.dirty[timer.crew] = None
