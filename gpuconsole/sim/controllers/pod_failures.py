"""Pods that fail by themselves or are rejected by the kubelet.

Their job counts the failure and recreates the pod after a backoff.
"""

from msgspec.structs import replace

from gpuconsole.model.cluster import Pod
from gpuconsole.model.gpus.sharing import UNEXPECTED, may_refuse, refusal
from gpuconsole.scheduling.volcano.jobs.requests import request_of_job
from gpuconsole.sim.controllers import completion, nodes
from gpuconsole.sim.controllers.reconcile import backoff
from gpuconsole.sim.controllers.solo import running
from gpuconsole.sim.controllers.volcano import actions
from gpuconsole.sim.kernel import Restart
from gpuconsole.sim.pod_group_state import running_group_key
from gpuconsole.sim.world import World


def fail_pod(world: World, pod: Pod) -> None:
    """A pod's container exits with an error."""
    _fail(world, pod, "Error", f"pod {pod.name} failed", exit_code=1)


def admit_pod(world: World, key: str) -> None:
    """The kubelet admits a pod; it rejects one that requests more than one shared device."""
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
    key = running_group_key(pod)
    group = world.groups.get(key)
    if group is not None and group.solo:
        verdict = running.count_failure(world, pod, exit_code)
        if verdict is not None:
            completion.conclude(world, group, verdict)
            return
    elif job is not None and not job.endless:
        world.put(replace(job, failures=job.failures + 1))
    counted = world.job(pod.job) if pod.job else None
    failures = max(1, counted.failures if counted is not None else 1)
    group = world.groups.get(key)
    if group is not None:
        delay = backoff(failures)
        world.put_group(replace(group, hold=world.now + delay))
        world.kernel.at(world.now + delay, Restart(key))


def restart_pods(world: World, timer: Restart) -> None:
    """Recreate failed pods when the backoff is over."""
    group = world.groups.get(timer.group)
    job = world.job(group.job) if group is not None and group.job else None
    if job is not None and job.volcano is not None:
        actions.ask(world, request_of_job(job))
    if group is not None:
        world.dirty[timer.group] = None
