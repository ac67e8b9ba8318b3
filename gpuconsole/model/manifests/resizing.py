"""In-place pod resize: the requests that count while a pod's resources change."""

from msgspec.structs import replace

from gpuconsole.model.documents.amounts import resources
from gpuconsole.model.documents.reader import Reader
from gpuconsole.model.pod_template import Container, PodTemplate
from gpuconsole.model.resources import Resources, largest


def resized(template: PodTemplate, status: Reader) -> PodTemplate:
    """Return the template with the requests that count for each container during an in-place resize.

    They are the maximum of desired, actual and allocated requests; if the resize is infeasible, of the latter two
    (k8s.io/component-helpers/resource PodRequests with UseStatusResources).
    """
    held = {**_held(status, "containerStatuses"), **_held(status, "initContainerStatuses")}
    if not held:
        return template
    infeasible = any(
        condition.text("type") == "PodResizePending" and condition.text("reason") == "Infeasible"
        for condition in status.items("conditions")
    )
    return replace(
        template,
        containers=tuple(_counted(container, held, infeasible) for container in template.containers),
        init_containers=tuple(_counted(container, held, infeasible) for container in template.init_containers),
    )


def _held(status: Reader, key: str) -> dict[str, Resources]:
    """Return the maximum of actual and allocated requests, by container name."""
    return {
        place.text("name"): largest(
            resources(place.mapping("resources"), "requests"), resources(place, "allocatedResources")
        )
        for place in status.items(key)
        if "resources" in place
    }


def _counted(container: Container, held: dict[str, Resources], infeasible: bool) -> Container:
    given = held.get(container.name)
    if given is None:
        return container
    return replace(container, requests=given if infeasible else largest(container.requests, given))
