"""The Cluster Autoscaler's answers to ProvisioningRequests: by free capacity, or by nodes for all pods."""

from msgspec.structs import replace

from gpuconsole.model.autoscaling import ProvisioningRequest
from gpuconsole.model.objects import TABLES
from gpuconsole.model.workloads import Condition
from gpuconsole.scheduling.kueue.provisioning.controller import FAILED, PROVISIONED
from gpuconsole.sim.autoscaling import groups
from gpuconsole.sim.autoscaling.ca_scale_up import grow, options_for, pods_of, rooms_left, without_room, workload_of
from gpuconsole.sim.autoscaling.policy import AutoscalerPolicy
from gpuconsole.sim.autoscaling.view import AutoscalerView
from gpuconsole.sim.random_streams import draw
from gpuconsole.sim.world import World

ATOMIC = "best-effort-atomic-scale-up.autoscaling.x-k8s.io"
FOUND = Condition(PROVISIONED, True, "CapacityIsFound", "Capacity is found in the cluster.")
SCALED = Condition(PROVISIONED, True, "CapacityIsProvisioned", "Capacity is found in the cluster.")
NOT_FOUND = Condition(FAILED, True, "CapacityIsNotFound", "Capacity is not found, CA will try to find it later.")


def answer_requests(world: World, policy: AutoscalerPolicy, view: AutoscalerView) -> bool:
    """Answer ProvisioningRequests, oldest first, until a group grows for one; True if one grew."""
    requests: list[ProvisioningRequest] = list(world.state.table(TABLES[ProvisioningRequest]).all())
    for request in sorted(requests, key=lambda request: (request.created, request.key)):
        if request.conditions:
            continue
        pods = pods_of(world, request)
        left = without_room(view, rooms_left(world, view, policy), pods)
        if not left:
            _answer(world, request, FOUND)
        elif request.provisioning_class == ATOMIC:
            options, _ = options_for(world, policy, view, left)
            whole = [option for option in options if len(option.pods) == len(left)]
            best = groups.choose(whole, policy.expander, draw(world.seed, "expander", request.key))
            if best is not None:
                grow(world, policy, replace(best, pods=()), view)
                _answer(world, request, SCALED)
                return True
        elif request.parameters.get("noRetry") == "true":
            _answer(world, request, NOT_FOUND)
    return False


def _answer(world: World, request: ProvisioningRequest, condition: Condition) -> None:
    world.put(replace(request, conditions=(replace(condition, since=world.now),)))
    if request.owners:
        world.unchecked[workload_of(request)] = None
