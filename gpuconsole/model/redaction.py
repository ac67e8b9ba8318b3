"""Redaction of Snapshot files: names become pseudonyms, consistently within the file.

Every string in an object is a name unless it is known to be something else: a word of the API, a measure, a scheduler's
text. Sizes, times, priorities, reasons, and labels and annotations of public APIs are kept; the constants below list
these words and fields. Names in schedulers' texts are replaced word by word, so that they still refer to the same
objects.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from gpuconsole.model.objects import Object
from gpuconsole.model.queues import AdmissionCheck
from gpuconsole.model.snapshot import NO_POLICY, SnapshotFile, Visibility, decode
from gpuconsole.model.workloads import Workload


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


WORD = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")
VOCABULARY = re.compile(
    r"(^|[./])(kubernetes\.io|k8s\.io|x-k8s\.io|nvidia\.com|amd\.com|volcano\.sh|gpuconsole\.io|karpenter\.sh|ray\.io"
    r"|kubeflow\.org|kai\.scheduler|run\.ai)(/|$)"
)
"""Matches public names of labels, annotations, resources, controllers and drivers, which are kept."""
NAMING = re.compile(
    r"(name|instance|part-of|component|managed-by|created-by|queue|nodepool|user|project|team|owner|class|uid|group)$"
)
"""Matches public label and annotation keys whose values are private names all the same."""
ROLE = "node-role.kubernetes.io/"
"""Prefix of node labels; what follows it is a private name."""
COMMON = _words(
    """
    main worker workers master launcher leader head chief ps evaluator trainer driver executor server client default
    train training inference gpu gpus cpu memory pods storage pod node nodes queue quota flavor flavors workload job
    control-plane ephemeral-storage default-scheduler volcano kai-scheduler kube-system kueue-system
    """
)
"""Names that are kept, because they reveal nothing and occur in most texts."""
PLAIN = re.compile(
    r"true|false|[0-9.]*|.{1,2}|hugepages-\d+[KMG]i|(requests|limits)\.(cpu|memory|storage|ephemeral-storage)",
    re.IGNORECASE,
)
MEASURE = re.compile(
    r"[+-]?[0-9.]+[A-Za-z%]{0,3}|([0-9]+(ms|[dhms]))+|true|false|[A-Z][A-Za-z]+|\d{4}-\d\d-\d\dT[0-9:.]+Z"
)
"""Matches values of annotations that are kept, because they are measures or words of an API, not names."""
UNKNOWN = re.compile(r"[A-Za-z0-9_.+-]+@[A-Za-z0-9_.-]+|https?://\S+|\b\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?\b")
"""Matches addresses in texts, which are removed: e-mail, URL, IP."""
CHECKS = re.compile(r"(\bAdmissionChecks? in \w+ state: )(.*)|(\bupdated state from .* with message: ).*", re.DOTALL)
"""Matches the parts of Kueue's texts that repeat the message of an admission check's controller."""
QUOTED = re.compile(r'"([^"]*)"')
WORDS = {
    **dict.fromkeys(("cluster_queue", "by_queue", "cohort", "parent"), "queue"),
    **dict.fromkeys(("owner", "job"), "job"),
    **dict.fromkeys(("workload", "by"), "workload"),
    **dict.fromkeys(("node", "unhealthy_nodes", "nominated_node", "selected_node", "exact"), "node"),
    **dict.fromkeys(("pod", "pod_names"), "pod"),
    **dict.fromkeys(("cluster", "clusters", "nominated_clusters", "location"), "cluster"),
    **dict.fromkeys(("namespace", "namespaces"), "namespace"),
    **dict.fromkeys(("key", "topology_key", "levels", "required", "preferred", "slice_required"), "key"),
    **dict.fromkeys(("value", "values"), "value"),
    **dict.fromkeys(("queue",), "queue"),
    **dict.fromkeys(("parent_group",), "group"),
}
"""Field → word from which its pseudonyms are made (`queue-1`); other fields get `name`."""
KINDS = {
    **{kind: kind.lower() for kind in ("Namespace", "Node", "Topology", "Workload", "Job", "Pod", "Container")},
    "ResourceFlavor": "flavor",
    "LocalQueue": "localqueue",
    "PodGroup": "group",
    "SchedulingWorkload": "workload",
    "CompositePodGroup": "group",
    "KaiPodGroup": "group",
    **dict.fromkeys(("Cohort", "ClusterQueue", "VolcanoQueue", "KaiQueue"), "queue"),
}
"""Type of an object → word from which the pseudonym of its name is made."""
OPEN = ("labels", "annotations", "node_labels", "node_selector", "match_labels", "env", "parameters", "details")
"""Mappings whose keys and values are chosen by users."""
TEXTS = ("message", "selectors")
"""Fields with texts, in which names are replaced word by word."""
KEPT = _words(
    """
    access_modes action admission_mode autoscaler capacity_type completed conditions consolidate_after
    consolidation_policy cpu_policy dequeue_strategy effect failed fractions highest_tier_name indexes kind
    cpu_strategy gpu_strategy preempt_min_runtime reclaim_min_runtime
    max_ratio max_unavailable merge_policy min_available mode model operator phase plugins policy preemptibility
    preemption_policy priority_kind profile protocol reason reasons restart_policy schedule scope share by_share state
    time_zone topology_policy type underlying_cause version when_unsatisfiable
    """
)
"""Fields with words of an API or measures, which are not private."""
SILENT = ("description", "image", "command", "images", "hostname", "subdomain", "source", "container", "ip")
"""Fields that are emptied."""
NUMBERS = frozenset({int, float, bool})
RESOURCE = "resource"
"""Word from which the pseudonyms of resources are made."""
CHOSEN = re.compile(r"[-./]")
"""Matches names that a user chose in Kueue's Configuration: its own words have no dot, hyphen or slash."""
PREFIXES = "exclude_resource_prefixes"
"""Field of Kueue's settings whose values are prefixes of resource names."""
PUBLIC_MESSAGES = ("CheckState",)
"""Types of objects whose message is emptied, because a controller that is not known here wrote it."""


def redact(data: bytes) -> bytes:
    """Return a Snapshot file with pseudonyms. Raises msgspec.DecodeError if it is not a Snapshot file."""
    file = decode(data)
    pseudonyms = Pseudonyms(_checks(file.objects))
    # Names of objects come first, so that their pseudonyms tell their kind.
    for obj in file.objects:
        pseudonyms.call(getattr(obj, "namespace", ""), "namespace")
        pseudonyms.call(getattr(obj, "name", ""), KINDS.get(type(obj).__name__, "name"))
    _collect(file.objects, pseudonyms)
    _collect(file.recent, pseudonyms)
    for gap in file.seen.gaps:
        for namespace in gap.namespaces:
            pseudonyms.call(namespace, "namespace")
    policy = _kueue_of(file.policy)
    if policy is not None:
        policy = redact_settings(policy, pseudonyms)
    made = SnapshotFile(
        format=file.format,
        time=file.time,
        objects=tuple(_replaced(obj, "", pseudonyms) for obj in file.objects),
        recent=tuple(_replaced(line, "", pseudonyms) for line in file.recent),
        policy=msgspec.Raw(msgspec.json.encode(policy)) if policy is not None else NO_POLICY,
        seed=file.seed,
        seen=_seen(file.seen, pseudonyms),
        staged=file.staged,
    )
    return msgspec.json.encode(made)


def _seen(seen: Visibility, pseudonyms: "Pseudonyms") -> Visibility:
    gaps = (
        replace(gap, why=pseudonyms.text(gap.why), namespaces=tuple(map(pseudonyms.text, gap.namespaces)))
        for gap in seen.gaps
    )
    return Visibility(gaps=tuple(gaps), assumed=tuple(map(pseudonyms.text, seen.assumed)))


def _checks(objects: Iterable[Object]) -> frozenset[str]:
    """Return the names of all admission checks, defined or required by a workload."""
    there = {obj.name for obj in objects if isinstance(obj, AdmissionCheck)}
    return frozenset(
        there.union(*([check.name for check in obj.checks] for obj in objects if isinstance(obj, Workload)))
    )


class Pseudonyms:
    """Map of names to pseudonyms. Mutated by `call`."""

    def __init__(self, checks: frozenset[str] = frozenset(), digits: int = 0) -> None:
        """`checks` are admission checks whose names may recur in texts; `digits` of numbers, padded with zeros."""
        self._digits = digits
        self._of: dict[str, str] = {}
        self._texts: dict[str, str] = {}
        """Text → redacted text, until the next new name."""
        self._plain: set[str] = set()
        self._checks = checks
        self._referred: set[str] = set()
        self._counts: dict[str, int] = {}

    def call(self, name: str, word: str) -> None:
        """Assign a pseudonym to a name, unless it has one or is not private."""
        if name in self._of or name in self._plain:
            return
        if name in COMMON or PLAIN.fullmatch(name) or VOCABULARY.search(name):
            self._plain.add(name)
            return
        count = self._counts[word] = self._counts.get(word, 0) + 1
        # Settings name resources by prefix, so no pseudonym may be a prefix of another.
        self._of[name] = f"{word}-{count:0{self._digits or (3 if word == RESOURCE else 0)}}"
        self._texts.clear()

    def refer(self, key: str, word: str) -> None:
        """Assign pseudonyms to a name, or to namespace and name in a key such as `Job/team/train`."""
        if key in self._referred:
            return
        self._referred.add(key)
        if not VOCABULARY.search(key):
            namespace, _, name = key.rpartition("/")
            self.call(namespace.rpartition("/")[2], "namespace")
            self.call(name, word)

    def text(self, text: str) -> str:
        """Return a name's pseudonym, or a text with the names in it replaced."""
        whole = self._of.get(text) or self._texts.get(text)
        if whole is None:
            whole = self._texts[text] = WORD.sub(lambda found: self._of.get(found[0], found[0]), text)
        return whole

    def beginning(self, prefix: str) -> list[str]:
        """Return the pseudonyms of the names with a prefix."""
        return [pseudonym for name, pseudonym in self._of.items() if name.startswith(prefix)]

    def said(self, text: str) -> str:
        """Redact a message, including addresses and the messages of admission checks."""
        return self.text(UNKNOWN.sub("…", CHECKS.sub(self._named, text)))

    def _named(self, matched: re.Match[str]) -> str:
        """Keep only the names of the admission checks in a list of them, because their messages are free text."""
        if matched[1] is None:
            return f"{matched[3]}…"
        names = dict.fromkeys(name for name in QUOTED.findall(matched[2]) if name in self._checks)
        return matched[1] + ("; ".join(f'"{name}"' for name in names) or "…")


def _collect(value: Any, pseudonyms: Pseudonyms, field: str = "") -> None:
    """Assign pseudonyms to all names in a value of this field."""
    if isinstance(value, Struct):
        for name in value.__struct_fields__:
            inner = getattr(value, name)
            if not inner or type(inner) in NUMBERS:
                continue
            if name not in SILENT and name not in TEXTS and not _closed(name, inner):
                _collect(inner, pseudonyms, name)
    elif isinstance(value, Mapping):
        _collect_mapping(value, pseudonyms, field)
    elif isinstance(value, tuple | list):
        for one in value:
            _collect(one, pseudonyms, field)
    elif type(value) is str:
        pseudonyms.refer(value, WORDS.get(field, "name"))


def _closed(field: str, value: Any) -> bool:
    """True for a field with a fixed vocabulary; structs in it, such as conditions, are redacted field by field."""
    return field in KEPT and not (isinstance(value, tuple) and value and isinstance(value[0], Struct))


def _collect_mapping(mapping: Mapping[Any, Any], pseudonyms: Pseudonyms, field: str) -> None:
    for key, value in mapping.items():
        if type(key) is not str:
            continue
        if key.startswith(ROLE):
            pseudonyms.call(key.removeprefix(ROLE), "value")
        pseudonyms.call(key, "key" if field in OPEN else RESOURCE)
        if field not in OPEN:
            _collect(value, pseudonyms, field)
        elif isinstance(value, str) and (field != "annotations" or VOCABULARY.search(key)):
            _collect_value(key, value, pseudonyms, field)


def _collect_value(key: str, value: str, pseudonyms: Pseudonyms, field: str) -> None:
    """Assign a pseudonym to a label or annotation value, unless its key's values are not private."""
    known = VOCABULARY.search(key) and not NAMING.search(key)
    if not known or (field == "annotations" and not MEASURE.fullmatch(value)):
        pseudonyms.call(value, "value")


def _replaced(value: Any, field: str, pseudonyms: Pseudonyms) -> Any:
    """Return a value of this field with pseudonyms."""
    if isinstance(value, Struct):
        return _struct(value, pseudonyms)
    if isinstance(value, Mapping):
        kept = value.items() if field != "annotations" else [one for one in value.items() if VOCABULARY.search(one[0])]
        return {_key(key, pseudonyms): _replaced(inner, field, pseudonyms) for key, inner in kept}
    if isinstance(value, tuple | list):
        return tuple(_replaced(one, field, pseudonyms) for one in value)
    if type(value) is not str:
        return value
    return pseudonyms.said(value) if field in TEXTS else pseudonyms.text(value)


def _struct(obj: Struct, pseudonyms: Pseudonyms) -> Any:
    changed = {}
    for field in obj.__struct_fields__:
        old = getattr(obj, field)
        if not old or type(old) in NUMBERS or _closed(field, old):
            continue
        if field in SILENT or (field == "message" and type(obj).__name__ in PUBLIC_MESSAGES):
            new = type(old)() if isinstance(old, str | tuple | dict) else old
        else:
            new = _replaced(old, field, pseudonyms)
        if new is not old:
            changed[field] = new
    return replace(obj, **changed) if changed else obj


def _key(key: Any, pseudonyms: Pseudonyms) -> Any:
    if type(key) is not str:
        return key
    if key.startswith(ROLE):
        return ROLE + pseudonyms.text(key.removeprefix(ROLE))
    return key if VOCABULARY.search(key) else pseudonyms.text(key)


# Policy


def _kueue_of(policy: msgspec.Raw) -> Any:
    """Return only the Kueue part of a policy: the rest names streams, prices and teams."""
    document = msgspec.json.decode(policy)
    return {"kueue": document["kueue"]} if isinstance(document, dict) and "kueue" in document else None


def redact_settings(tree: Any, pseudonyms: Pseudonyms) -> Any:
    """Return settings of Kueue (a JSON value) with pseudonyms of the names that a user chose."""
    for text in _texts(tree):
        if CHOSEN.search(text):
            pseudonyms.call(text, RESOURCE)
    return _policy(tree, pseudonyms)


def _texts(tree: Any) -> Iterable[str]:
    if isinstance(tree, dict):
        for key, value in tree.items():
            yield key
            yield from _texts(value)
    elif isinstance(tree, list):
        for value in tree:
            yield from _texts(value)
    elif isinstance(tree, str):
        yield tree


def _policy(tree: Any, pseudonyms: Pseudonyms) -> Any:
    if isinstance(tree, dict):
        return {_chosen(key, pseudonyms): _policy(value, pseudonyms) for key, value in _spelled_out(tree, pseudonyms)}
    if isinstance(tree, list):
        return [_policy(one, pseudonyms) for one in tree]
    return _chosen(tree, pseudonyms) if isinstance(tree, str) else tree


def _spelled_out(settings: dict[str, Any], pseudonyms: Pseudonyms) -> Iterable[tuple[str, Any]]:
    """Expand prefixes of resource names in settings to the resources that begin with them."""
    for key, value in settings.items():
        if key == PREFIXES:
            known = [prefix for prefix in value if VOCABULARY.search(prefix) or not CHOSEN.search(prefix)]
            others = [name for prefix in value if prefix not in known for name in pseudonyms.beginning(prefix)]
            yield key, [*known, *dict.fromkeys(others)]
        else:
            yield key, value


def _chosen(text: str, pseudonyms: Pseudonyms) -> str:
    return pseudonyms.text(text) if CHOSEN.search(text) and not VOCABULARY.search(text) else text
