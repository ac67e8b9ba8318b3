"""The option to let ClusterQueues without namespaceSelector, which match no namespace, admit from every namespace."""

from msgspec.structs import replace

from gpuconsole.model.documents.findings import Finding, Severity
from gpuconsole.model.labels import LabelSelector
from gpuconsole.model.manifests.kueue import NO_SELECTOR
from gpuconsole.model.objects import Object
from gpuconsole.model.queues import ClusterQueue


def admitting_all(obj: Object) -> Object:
    """Return the object; a ClusterQueue without selector gets the empty one, which selects all namespaces."""
    if isinstance(obj, ClusterQueue) and obj.namespace_selector is None:
        return replace(obj, namespace_selector=LabelSelector())
    return obj


def noted(finding: Finding) -> Finding:
    """Return the finding; a missing selector becomes a note, because the option handles it."""
    if finding.code != NO_SELECTOR:
        return finding
    problem = "it has no namespaceSelector; --admit-all-namespaces lets it admit from every namespace"
    return replace(finding, severity=Severity.NOTE, problem=problem)
