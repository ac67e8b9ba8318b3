"""MultiKueueConfig and MultiKueueCluster."""

from gpuconsole.model.clock import Time
from gpuconsole.model.documents.metadata import metadata, spec_of
from gpuconsole.model.documents.names import unique
from gpuconsole.model.documents.reader import Reader
from gpuconsole.model.multikueue import MultiKueueCluster, MultiKueueConfig

_MOST_CLUSTERS = 20


def config(reader: Reader, now: Time) -> MultiKueueConfig:
    meta = metadata(reader, now, namespaced=False)
    spec = spec_of(reader, "clusters", "quotaManagement")
    clusters = spec.texts("clusters", _MOST_CLUSTERS)
    if not clusters:
        spec.report.refused(spec.at("clusters"), "clusters is empty", "name at least one MultiKueueCluster", "required")
    unique(spec, "clusters", clusters)
    return MultiKueueConfig(name=meta.name, clusters=clusters)


def cluster(reader: Reader, now: Time) -> MultiKueueCluster:
    """A worker cluster; without a status it is taken as active. v1beta1 has kubeConfig beside clusterProfileRef."""
    meta = metadata(reader, now, namespaced=False)
    spec = spec_of(reader, "clusterSource", "kubeConfig")
    source = spec.mapping("clusterSource") if "clusterSource" in spec else spec
    active = True
    for condition in reader.mapping("status").items("conditions"):
        if condition.text("type") == "Active":
            active = condition.text("status") == "True"
    return MultiKueueCluster(name=meta.name, location=source.mapping("kubeConfig").text("location"), active=active)
