"""MultiKueueConfig and MultiKueueCluster."""

from gpuconsole.model.clock import Time
from gpuconsole.model.documents.metadata import metadata
from gpuconsole.model.documents.reader import Reader
from gpuconsole.model.multikueue import MultiKueueCluster, MultiKueueConfig


def config(reader: Reader, now: Time) -> MultiKueueConfig:
    """Read a MultiKueueConfig."""
    meta = metadata(reader, now, namespaced=False)
    return MultiKueueConfig(name=meta.name, clusters=reader.mapping("spec").texts("clusters"))


def cluster(reader: Reader, now: Time) -> MultiKueueCluster:
    """Read a MultiKueueCluster; without a status it counts as active. In v1beta1 kubeConfig is in `spec` itself."""
    meta = metadata(reader, now, namespaced=False)
    spec = reader.mapping("spec")
    source = spec.mapping("clusterSource") if "clusterSource" in spec else spec
    active = True
    for condition in reader.mapping("status").items("conditions"):
        if condition.text("type") == "Active":
            active = condition.text("status") == "True"
    return MultiKueueCluster(name=meta.name, location=source.mapping("kubeConfig").text("location"), active=active)
