"""Classes of pods with equal scheduling requirements, so that placement evaluates each class once."""

from collections.abc import Mapping

from msgspec import Struct
from msgspec.structs import replace

from gpuconsole.model.labels import NodeTerm, PreferredTerm, Toleration
from gpuconsole.model.pod_template import Container, PodTemplate
from gpuconsole.model.resources import CPU, HAMI_SHARES, MEMORY, gpus
from gpuconsole.scheduling.kube.profile import IMAGES, SchedulerProfile

DEFAULT_CPU = 100
DEFAULT_MEMORY = 200 * 1024**2
"""Requests, in milli-CPU and bytes, that scores assume for a container without any (GetNonzeroRequests)."""

Key = tuple[object, ...]
DEFAULT = SchedulerProfile(scores=())


class PodClass(Struct, frozen=True, eq=False):
    """Requirements of one class of pods. Compared by identity: `PodClasses` makes one for each distinct class."""

    requests: Mapping[str, int]
    """Without zeros."""
    counted: Mapping[str, int]
    """cpu and memory for scores, which use defaults for containers without requests."""
    gpus: int
    node_selector: Mapping[str, str]
    affinity: tuple[NodeTerm, ...] | None
    preferred: tuple[PreferredTerm, ...]
    tolerations: tuple[Toleration, ...]
    limited: Mapping[str, int]
    """The requests that NodeResourcesFit checks."""
    images: tuple[str, ...] = ()
    """Images of its containers; empty if the profile does not enable ImageLocality."""


class PodClasses:
    """Interns pod classes. Mutates, but only as a cache: forks share it."""

    _REMEMBERED = 4096

    def __init__(self, rules: SchedulerProfile = DEFAULT) -> None:
        self._images = bool(rules.weight(IMAGES))
        self._ignored = frozenset(rules.ignored_resources)
        self._groups = frozenset(rules.ignored_groups)
        self._by_key: dict[Key, PodClass] = {}
        # Holds the template itself, so that its id is not reused while it is a key.
        self._by_template: dict[int, tuple[PodTemplate, PodClass]] = {}

    def of(self, template: PodTemplate) -> PodClass:
        """The class of a template; the same object for templates with the same requirements."""
        known = self._by_template.get(id(template))
        if known is not None:
            return known[1]
        if len(self._by_template) >= self._REMEMBERED:
            self._by_template.clear()
        shape = self._shape(template)
        shape = self._by_key.setdefault(_key(shape), shape)
        self._by_template[id(template)] = (template, shape)
        return shape

    def _shape(self, template: PodTemplate) -> PodClass:
        requests = {name: value for name, value in template.requests.items() if value > 0}
        every = (*template.containers, *template.init_containers)
        filled = replace(
            template,
            containers=tuple(_filled(container) for container in template.containers),
            init_containers=tuple(_filled(container) for container in template.init_containers),
        ).requests
        return PodClass(
            requests=requests,
            counted={CPU: filled.get(CPU, 0), MEMORY: filled.get(MEMORY, 0)},
            gpus=gpus(requests),
            node_selector=template.node_selector,
            affinity=template.affinity,
            preferred=template.preferred,
            tolerations=template.tolerations,
            limited={name: value for name, value in requests.items() if not self._is_ignored(name)},
            images=tuple(container.image for container in every) if self._images else (),
        )

    def _is_ignored(self, resource: str) -> bool:
        """True if NodeResourcesFit ignores the resource: extended resources by name, or by group (what precedes `/`).

        HAMi's GPU shares are not node resources: its scheduler ignores them, and its extender places them.
        """
        return resource in HAMI_SHARES or resource in self._ignored or resource.partition("/")[0] in self._groups


def _filled(container: Container) -> Container:
    return replace(container, requests={CPU: DEFAULT_CPU, MEMORY: DEFAULT_MEMORY, **container.effective})


def _key(shape: PodClass) -> Key:
    return (
        tuple(sorted(shape.requests.items())),
        tuple(sorted(shape.counted.items())),
        tuple(sorted(shape.node_selector.items())),
        shape.affinity,
        shape.preferred,
        shape.tolerations,
        shape.images,
    )
