"""Vocabulary of redaction: words that APIs define and redaction keeps, and the fields that hold names."""

import re


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


WORD = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")
VOCABULARY = re.compile(
    r"(^|[./])(kubernetes\.io|k8s\.io|x-k8s\.io|nvidia\.com|amd\.com|volcano\.sh|gpuconsole\.io|karpenter\.sh|ray\.io"
    r"|kubeflow\.org|kai\.scheduler|run\.ai)(/|$)"
)
"""Public names of labels, annotations, resources, controllers and drivers."""
NAMING = re.compile(
    r"(name|instance|part-of|component|managed-by|created-by|queue|nodepool|user|project|team|owner|class|uid|group)$"
)
"""Keys of that vocabulary whose values are private names."""
ROLE = "node-role.kubernetes.io/"
"""The rest of a key with this prefix is a name."""
COMMON = _words(
    """
    main worker workers master launcher leader head chief ps evaluator trainer driver executor server client default
    train training inference gpu gpus cpu memory pods storage pod node nodes queue quota flavor flavors workload job
    control-plane ephemeral-storage default-scheduler volcano kai-scheduler kube-system kueue-system
    """
)
"""Common names, which reveal nothing and occur in most texts."""
PLAIN = re.compile(
    r"true|false|[0-9.]*|.{1,2}|hugepages-\d+[KMG]i|(requests|limits)\.(cpu|memory|storage|ephemeral-storage)",
    re.IGNORECASE,
)
MEASURE = re.compile(
    r"[+-]?[0-9.]+[A-Za-z%]{0,3}|([0-9]+(ms|[dhms]))+|true|false|[A-Z][A-Za-z]+|\d{4}-\d\d-\d\dT[0-9:.]+Z"
)
"""Values of annotations that are not names."""
UNKNOWN = re.compile(r"[A-Za-z0-9_.+-]+@[A-Za-z0-9_.-]+|https?://\S+|\b\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?\b")
"""Addresses in a text, which are not names in the file."""
CHECKS = re.compile(r"(\bAdmissionChecks? in \w+ state: )(.*)|(\bupdated state from .* with message: ).*", re.DOTALL)
"""Texts that repeat messages of unknown controllers: of checks in a state, and of one whose state changed."""
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
"""Field → word for its pseudonyms; others get `name`."""
KINDS = {
    **{kind: kind.lower() for kind in ("Namespace", "Node", "Topology", "Workload", "Job", "Pod", "Container")},
    "ResourceFlavor": "flavor",
    "LocalQueue": "door",
    "PodGroup": "group",
    "SchedulingWorkload": "workload",
    "CompositePodGroup": "group",
    "KaiPodGroup": "group",
    **dict.fromkeys(("Cohort", "ClusterQueue", "VolcanoQueue", "KaiQueue"), "queue"),
}
"""Type of an object → word for the pseudonym of its name."""
OPEN = ("labels", "annotations", "node_labels", "node_selector", "match_labels", "env", "parameters", "details")
"""Mappings whose keys and values are chosen by users."""
TEXTS = ("message", "selectors")
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
CHOSEN = re.compile(r"[-./]")
PREFIXES = "exclude_resource_prefixes"
PUBLIC_MESSAGES = ("CheckState",)
"""Types whose messages are emptied, because unknown controllers write them."""
