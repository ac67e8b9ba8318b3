"""Discovery of the API kinds that a cluster serves: version, API path and verbs of each kind that the console reads.

It takes two requests if the server supports aggregated discovery (Kubernetes 1.27 and newer), else one for the list of
groups, and one for each version of a group with known kinds.
"""

from collections.abc import Iterable
from typing import TypeVar

import msgspec
from msgspec import Struct, field

from gpuconsole.backends.kube.client import JSON, ApiResponse, ApiServerConnection
from gpuconsole.backends.kube.errors import Refused
from gpuconsole.errors import ClusterError
from gpuconsole.model.manifests.kinds import DECODERS, versions_of
from gpuconsole.model.text import clean

AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
EVENT = ("", "Event")
LEFT_ALONE = frozenset(
    {
        *(("", "PersistentVolume"), ("", "PersistentVolumeClaim"), ("", "PodTemplate")),
        *(("storage.k8s.io", "StorageClass"), ("storage.k8s.io", "CSINode")),
    }
)
"""Kinds that are never watched: no screen shows them, and some have many objects.

So simulations of a live cluster ignore volumes, and the volumes of pods are not decoded (`decode`).
"""
SOURCES = (*(source for source in DECODERS if source not in LEFT_ALONE), EVENT)
"""(group, kind) of all kinds that are watched if they are served."""


class Served(Struct, frozen=True, kw_only=True):
    """An API kind in the version and with the verbs that the cluster serves."""

    group: str
    version: str
    kind: str
    plural: str
    namespaced: bool
    verbs: frozenset[str] = frozenset()

    @property
    def source(self) -> tuple[str, str]:
        """API group and kind, by which kinds are known in tables."""
        return self.group, self.kind

    @property
    def resource(self) -> str:
        """Resource name in messages: `workloads.kueue.x-k8s.io`."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    def path(self, namespace: str = "", name: str = "") -> str:
        """Return the API path of all objects, of those in a namespace, or of one."""
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        inside = f"/namespaces/{namespace}" if namespace and self.namespaced else ""
        return f"{root}{inside}/{self.plural}{f'/{name}' if name else ''}"


class _Kind(Struct, frozen=True):
    group: str = ""
    version: str = ""
    kind: str = ""


class _Resource(Struct, frozen=True, rename="camel"):
    resource: str = ""
    response_kind: _Kind | None = None
    scope: str = ""
    verbs: tuple[str, ...] = ()


class _Version(Struct, frozen=True):
    version: str = ""
    resources: tuple[_Resource, ...] = ()


class _Meta(Struct, frozen=True):
    name: str = ""


class _Group(Struct, frozen=True):
    metadata: _Meta = _Meta()
    versions: tuple[_Version, ...] = ()


class _Groups(Struct, frozen=True):
    """apidiscovery.k8s.io/v2 APIGroupDiscoveryList"""

    kind: str = ""
    items: tuple[_Group, ...] = ()


class _OldVersion(Struct, frozen=True):
    version: str = ""


class _OldGroup(Struct, frozen=True):
    name: str = ""
    versions: tuple[_OldVersion, ...] = ()


class _OldGroups(Struct, frozen=True):
    """metav1.APIGroupList"""

    kind: str = ""
    groups: tuple[_OldGroup, ...] = ()


class _OldResource(Struct, frozen=True):
    name: str = ""
    kind: str = ""
    namespaced: bool = False
    verbs: tuple[str, ...] = ()


class _OldResources(Struct, frozen=True):
    """metav1.APIResourceList"""

    kind: str = ""
    resources: tuple[_OldResource, ...] = field(default_factory=tuple)


_GROUPS = msgspec.json.Decoder(_Groups)
_OLD_GROUPS = msgspec.json.Decoder(_OldGroups)
_OLD_RESOURCES = msgspec.json.Decoder(_OldResources)
_AGGREGATED_KIND = "APIGroupDiscoveryList"
PATIENCE = 10.0
"""Timeout in seconds for the next bytes of a response, which the server has available."""
_WANTED: frozenset[str] = frozenset(group for group, _ in SOURCES)


def discover(connection: ApiServerConnection) -> tuple[Served, ...]:
    """Discover the served kinds, one version each, in the order of `SOURCES`. Raises ClusterError if there are none."""
    accept = f"{AGGREGATED},{JSON}"
    groups = _listed(connection.get("/api", accept=accept, read=PATIENCE), _GROUPS, _AGGREGATED_KIND, "APIVersions")
    if groups.kind == _AGGREGATED_KIND:
        named = _listed(connection.get("/apis", accept=accept, read=PATIENCE), _GROUPS, _AGGREGATED_KIND)
        found = [served for group in (*groups.items, *named.items) for served in _aggregated(group)]
    else:
        found = list(_one_by_one(connection))
    chosen = choose(found)
    if not chosen:
        raise ClusterError(f"{connection.place.name}: serves no nodes, pods or queues; is it a Kubernetes API server?")
    return chosen


_List = TypeVar("_List", _Groups, _OldGroups, _OldResources)


def _listed(answer: ApiResponse, decoder: msgspec.json.Decoder[_List], *kinds: str) -> _List:
    """Decode a list of one of these kinds. Raises Unreadable for any other kind."""
    listed = answer.decode_with(decoder)
    if listed.kind not in kinds:
        raise answer.unreadable(f"its kind is {listed.kind or 'missing'}, not {' or '.join(kinds)}")
    return listed


def choose(found: Iterable[Served]) -> tuple[Served, ...]:
    """Choose one version of each kind: the server's preferred one among those supported, else its preferred one."""
    by_kind: dict[tuple[str, str], list[Served]] = {}
    for served in found:
        if served.source in SOURCES and {"list", "watch"} <= served.verbs:
            by_kind.setdefault(served.source, []).append(served)
    return tuple(_favourite(by_kind[source]) for source in SOURCES if source in by_kind)


def _favourite(versions: list[Served]) -> Served:
    return next((one for one in versions if one.version in _known_versions(one)), versions[0])


def _known_versions(served: Served) -> tuple[str, ...]:
    """Versions of a kind that the console can decode; empty for Events, which are decoded in any version."""
    return versions_of(*served.source) if served.source in DECODERS else ()


def _aggregated(group: _Group) -> Iterable[Served]:
    for version in group.versions:
        for resource in version.resources:
            kind = resource.response_kind.kind if resource.response_kind is not None else ""
            yield Served(
                group=clean(group.metadata.name),
                version=clean(version.version),
                kind=clean(kind),
                plural=clean(resource.resource),
                namespaced=resource.scope == "Namespaced",
                verbs=frozenset(resource.verbs),
            )


def _one_by_one(connection: ApiServerConnection) -> Iterable[Served]:
    """Discover kinds group by group, for servers without aggregated discovery."""
    yield from _resources(connection, "", "v1", "/api/v1")
    for group in _listed(connection.get("/apis", read=PATIENCE), _OLD_GROUPS, "APIGroupList").groups:
        if group.name not in _WANTED:
            continue
        for version in group.versions:
            yield from _resources(connection, group.name, version.version, f"/apis/{group.name}/{version.version}")


def _resources(connection: ApiServerConnection, group: str, version: str, path: str) -> Iterable[Served]:
    try:
        listed = _listed(connection.get(path, read=PATIENCE), _OLD_RESOURCES, "APIResourceList").resources
    except Refused as error:
        if error.code in (404, 503):
            return  # An aggregated API whose server is unavailable.
        raise
    for resource in listed:
        if "/" not in resource.name:
            yield Served(
                group=group,
                version=version,
                kind=clean(resource.kind),
                plural=clean(resource.name),
                namespaced=resource.namespaced,
                verbs=frozenset(resource.verbs),
            )


def find(connection: ApiServerConnection, group: str, kind: str, version: str) -> Served | None:
    """Find a kind that is not watched, named as in a manifest; None if the cluster does not serve it.

    Raises Unreachable, Refused.
    """
    path = f"/apis/{group}/{version}" if group else f"/api/{version}"
    return next((served for served in _resources(connection, group, version, path) if served.kind == kind), None)
