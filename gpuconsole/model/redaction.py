"""A Snapshot file without what it says about its owners: names become pseudonyms, the same everywhere in the file.

What stays is what decides: sizes, times, priorities, reasons, and labels and annotations of Kubernetes' own vocabulary.
A text is looked through word by word, so that messages still name the same things.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

_WORD = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")
_KINDS = {
    "Namespace": "namespace",
    "Node": "node",
    "ResourceFlavor": "flavor",
    "Topology": "topology",
    "Cohort": "cohort",
    "ClusterQueue": "queue",
    "LocalQueue": "door",
    "VolcanoQueue": "queue",
    "KaiQueue": "queue",
    "Workload": "workload",
    "Job": "job",
    "Pod": "pod",
    "PodGroup": "group",
}
"""Type of an object → the word for its pseudonym; others are called `name`."""
_VOCABULARY = re.compile(
    r"(^|\.)(kubernetes\.io|k8s\.io|x-k8s\.io|nvidia\.com|amd\.com|volcano\.sh|gpuconsole\.io|karpenter\.sh|ray\.io"
    r"|kubeflow\.org|kai\.scheduler|run\.ai)/"
)
"""Keys of labels and annotations whose meaning is everybody's."""
_NAMING = re.compile(r"(name|instance|part-of|queue|nodepool|user|project|team|class|uid|group)$")
"""Keys of that vocabulary whose values are names all the same."""
_REFERENCES = {
    **dict.fromkeys(("queue", "by_queue", "cluster_queue", "parent", "cohort"), "queue"),
    **dict.fromkeys(("owner", "job"), "job"),
    **dict.fromkeys(("workload", "by"), "workload"),
    **dict.fromkeys(("node", "unhealthy_nodes", "nominated_node", "selected_node", "exact"), "node"),
    **dict.fromkeys(("pod", "pod_names"), "pod"),
    **dict.fromkeys(("cluster", "clusters", "nominated_clusters", "location"), "cluster"),
    **dict.fromkeys(("namespaces",), "namespace"),
    **dict.fromkeys(("key", "topology_key", "levels", "required", "preferred", "slice_required"), "key"),
    **dict.fromkeys(("value", "values"), "value"),
    **dict.fromkeys(("flavor", "topology", "group", "gang", "uid", "job_uid", "uuid", "display_name"), "name"),
    **dict.fromkeys(("volume", "handle", "parameters", "workload_priority_class"), "name"),
    **dict.fromkeys(("priority_class", "runtime_class", "storage_class", "claim", "template", "local_volumes"), "name"),
}
"""Fields with names, also of what is not there any more → the word for a pseudonym."""
_OPEN = ("labels", "annotations", "node_labels", "node_selector", "match_labels", "env")
"""Mappings whose keys are chosen by people."""
_CLOSED = ("type", "what", "kind", "effect", "operator", "phase", "status", "format")
"""Fields with words of ours, which nobody chose."""
_SILENT = ("description", "image", "command", "images", "hostname", "subdomain", "source", "container")
_PLAIN = re.compile(r"true|false|[0-9.]*|.{1,2}", re.IGNORECASE)
"""Values that say nothing of anybody, and would be found everywhere."""


def redact(data: bytes) -> bytes:
    """Give a Snapshot file back with pseudonyms. Raises msgspec.DecodeError for what is no JSON."""
    tree = msgspec.json.decode(data)
    pseudonyms = _Pseudonyms()
    for thing in tree.get("objects", ()):
        word = _KINDS.get(thing.get("type", ""), "name")
        pseudonyms.call(thing.get("namespace", ""), "namespace")
        pseudonyms.call(thing.get("name", ""), word)
    for field, name in _references(tree):
        pseudonyms.refer(name, _REFERENCES[field])
    for mapping in _mappings(tree):
        for key, value in mapping.items():
            known = _VOCABULARY.search(key)
            if not known:
                pseudonyms.call(key, "key")
            if not known or _NAMING.search(key):
                pseudonyms.call(value, "value")
    # How a simulation goes on names its queues and streams; the cluster itself is told without it.
    return msgspec.json.encode(_replaced({**tree, "policy": None}, pseudonyms, ""))


class _Pseudonyms:
    """Word → pseudonym. Mutates by `call`."""

    def __init__(self) -> None:
        self._of: dict[str, str] = {}
        self._counts: dict[str, int] = {}

    def call(self, name: object, word: str) -> None:
        """Find a pseudonym for a name, unless it has one, or is none."""
        if not isinstance(name, str) or name in self._of or _PLAIN.fullmatch(name):
            return
        self._counts[word] = self._counts.get(word, 0) + 1
        self._of[name] = f"{word}-{self._counts[word]}"

    def refer(self, key: str, word: str) -> None:
        """Find pseudonyms for a name, or for namespace and name in a key such as `Job/team/train`."""
        if not _VOCABULARY.search(key):
            namespace, _, name = key.rpartition("/")
            self.call(namespace.rpartition("/")[2], "namespace")
            self.call(name, word)

    def text(self, text: str) -> str:
        """A text with pseudonyms for the names in it."""
        whole = self._of.get(text)
        return _WORD.sub(lambda found: self._of.get(found[0], found[0]), text) if whole is None else whole


def _mappings(tree: Any) -> Iterator[Mapping[str, Any]]:
    """Labels and annotations, wherever they are."""
    if isinstance(tree, dict):
        for key, value in tree.items():
            if key in _OPEN and isinstance(value, dict):
                yield value
            else:
                yield from _mappings(value)
    elif isinstance(tree, list):
        for value in tree:
            yield from _mappings(value)


def _references(tree: Any) -> Iterator[tuple[str, str]]:
    """(field, name) wherever one thing names another; values of keys of the vocabulary are left out."""
    if isinstance(tree, list):
        for value in tree:
            yield from _references(value)
    elif isinstance(tree, dict):
        known = _VOCABULARY.search(str(tree.get("key", "")))
        for field, value in tree.items():
            names = value if isinstance(value, list) else [value]
            if field in _REFERENCES and not known:
                yield from ((field, name) for name in names if isinstance(name, str))
            if field not in _OPEN:
                yield from _references(value)


def _replaced(tree: Any, pseudonyms: _Pseudonyms, field: str) -> Any:
    if isinstance(tree, dict):
        if field in _OPEN:
            kept = tree.items() if field != "annotations" else [i for i in tree.items() if _VOCABULARY.search(i[0])]
            return {_key(key, pseudonyms): _replaced(value, pseudonyms, "") for key, value in kept}
        free = field == "reclaimable"
        return {
            pseudonyms.text(key) if free else key: value
            if key in _CLOSED and isinstance(value, str)
            else _replaced(value, pseudonyms, key)
            for key, value in tree.items()
            if key not in _SILENT
        }
    if isinstance(tree, list):
        return [_replaced(value, pseudonyms, field) for value in tree]
    return pseudonyms.text(tree) if isinstance(tree, str) else tree


def _key(key: str, pseudonyms: _Pseudonyms) -> str:
    return key if _VOCABULARY.search(key) else pseudonyms.text(key)
