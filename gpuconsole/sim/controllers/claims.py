"""ResourceClaims: created from templates, allocated when their pod is bound, released when it ends.

As in Kubernetes' resource claim controller and the scheduler's PreBind.
"""

from msgspec.structs import replace

from gpuconsole.model.cluster import Pod
from gpuconsole.model.decisions import Bind
from gpuconsole.model.devices import ResourceClaim, ResourceClaimTemplate
from gpuconsole.scheduling.devices.dra_inventory import claim_keys
from gpuconsole.sim.controllers import quotas
from gpuconsole.sim.world import World


def provide_resource_claims(world: World) -> None:
    """Create the claims of pods, delete those of ended or deleted pods, and deallocate claims that no pod uses."""
    world.unclaimed = False
    for claim in list(world.state.table("resource_claims").all()):
        if claim.pod and _is_over(world.pod(claim.pod)):
            world.drop(ResourceClaim, claim.key)
        elif claim.reserved:
            _release_resource_claim(world, claim)
    for pod in list(world.state.table("pods").all()):
        if pod.template.resource_claims and not pod.done:
            _make_resource_claims(world, pod)


def _is_over(owner: Pod | None) -> bool:
    """True if the pod of a claim no longer needs it (resource claim controller: isPodDone)."""
    return owner is None or owner.done


def bind_resource_claims(world: World, decision: Bind) -> None:
    """Record the allocation of a bound pod's claims, and reserve them for it."""
    pod = world.pod(decision.pod)
    if pod is None or not pod.template.resource_claims:
        return
    given = dict(decision.devices)
    for key in dict.fromkeys(claim_keys(pod)):
        claim = world.state.get(ResourceClaim, key)
        if claim is None:
            continue
        allocation = claim.allocation or given.get(key)
        if allocation is not None and pod.key not in claim.reserved:
            world.put(replace(claim, allocation=allocation, reserved=(*claim.reserved, pod.key)))


def _make_resource_claims(world: World, pod: Pod) -> None:
    for named, key in zip(pod.template.resource_claims, claim_keys(pod), strict=True):
        template = world.state.get(ResourceClaimTemplate, f"{pod.namespace}/{named.template}")
        if named.claim or template is None or world.state.get(ResourceClaim, key) is not None:
            continue
        claim = ResourceClaim(
            namespace=pod.namespace,
            name=key.partition("/")[2],
            uid=world.uid("ResourceClaim", key),
            requests=template.requests,
            constraints=template.constraints,
            pod=pod.key,
        )
        refusal = quotas.quota_refusal(world, claim)
        if refusal:
            text = f"PodResourceClaim {named.name}: create ResourceClaim: {refusal}"
            quotas.tell_refused_claim(world, pod, "FailedResourceClaimCreation", text)
        else:
            world.put(claim)


def _release_resource_claim(world: World, claim: ResourceClaim) -> None:
    users = tuple(key for key in claim.reserved if (pod := world.pod(key)) is not None and not pod.done)
    if users != claim.reserved:
        world.put(replace(claim, reserved=users, allocation=claim.allocation if users else None))
