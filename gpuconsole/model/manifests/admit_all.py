"""ClusterQueues without a namespaceSelector, which admit nobody, opened to every namespace on request."""

from msgspec.structs import replace

from gpuconsole.model.documents.findings import Finding, Severity
from gpuconsole.model.labels import LabelSelector
from gpuconsole.model.manifests.kueue import NO_SELECTOR
from gpuconsole.model.objects import Object
from gpuconsole.model.queues import ClusterQueue


def admitting_all(obj: Object) -> Object:
    """The object; a ClusterQueue without a selector gets the empty one, which selects every namespace."""
    if isinstance(obj, ClusterQueue) and obj.namespace_selector is None:
        return replace(obj, namespace_selector=LabelSelector())
    return obj


def noted(finding: Finding) -> Finding:
    """The finding; that a selector is missing is no trouble then, but worth knowing."""
    if finding.code != NO_SELECTOR:
        return finding
    problem = "it has no namespaceSelector; --admit-all-namespaces lets it admit from every namespace"
    return replace(finding, severity=Severity.NOTE, problem=problem)
