"""Reader of a KubeSchedulerConfiguration (kubescheduler.config.k8s.io/v1): its profiles, and findings about errors.

The text may be the file itself, or the ConfigMap that holds it. kube-scheduler enables its default plugins at every
extension point at once (multiPoint); a profile's settings for a single point take precedence.
"""

from msgspec import Struct
from msgspec.structs import replace

from gpuconsole.model.clock import SECOND
from gpuconsole.model.documents.findings import Finding, Severity
from gpuconsole.model.documents.reader import Reader
from gpuconsole.model.documents.yaml_json import find_configuration
from gpuconsole.scheduling.kube.configured_plugins import check, enabled, weighted
from gpuconsole.scheduling.kube.plugin_arguments import ARGUMENTS
from gpuconsole.scheduling.kube.profile import FILTERS, FIT, PREEMPTION, SCORES, BackoffSettings, SchedulerProfile

KIND = "KubeSchedulerConfiguration"
GROUP = "kubescheduler.config.k8s.io"
FIELDS = (
    *("apiVersion", "kind", "profiles", "percentageOfNodesToScore", "podInitialBackoffSeconds", "podMaxBackoffSeconds"),
    *("extenders", "parallelism", "leaderElection", "clientConnection", "delayCacheUntilActive"),
    *("enableProfiling", "enableContentionProfiling", "healthzBindAddress", "metricsBindAddress"),
)


class ParsedKubeSchedulerConfiguration(Struct, frozen=True):
    """The configuration of a file, and findings about it."""

    profiles: tuple[SchedulerProfile, ...]
    findings: tuple[Finding, ...] = ()

    @property
    def errors(self) -> list[Finding]:
        return [finding for finding in self.findings if finding.severity is Severity.ERROR]

    def named(self, name: str) -> SchedulerProfile | None:
        """The profile with this schedulerName, or the first if the name is empty; None if there is none."""
        return next((profile for profile in self.profiles if name in ("", profile.name)), None)


def read_configuration(text: str, name: str = "scheduler-config.yaml") -> ParsedKubeSchedulerConfiguration:
    """Read a configuration; values that cannot be read take their defaults and cause a finding."""
    document, report = find_configuration(
        text,
        name,
        meant=lambda found: found.get("kind") == KIND,
        holds=lambda _, held: KIND in held,
        absent=(f"it holds no {KIND}", f"write kind: {KIND}"),
        strict=True,
    )
    profiles = (SchedulerProfile(),) if document is None else _profiles(Reader(document, report))
    return ParsedKubeSchedulerConfiguration(profiles, tuple(report.findings))


def _profiles(root: Reader) -> tuple[SchedulerProfile, ...]:
    root.only(*FIELDS)
    version = root.text("apiVersion", f"{GROUP}/v1")
    if version != f"{GROUP}/v1":
        root.report.error(
            root.at("apiVersion"), f"kube-scheduler does not read {version}", f"write {GROUP}/v1", "version"
        )
    if root.raw("extenders"):
        problem = "extenders are not called by the simulated scheduler"
        root.report.warning(root.at("extenders"), problem, "expect other decisions where they matter", "extenders")
    common = SchedulerProfile(
        percentage=root.number("percentageOfNodesToScore", 0, low=0, high=100), backoff=_backoff(root)
    )
    found = tuple(_profile(place, common) for place in root.items("profiles")) or (common,)
    names = [profile.name for profile in found]
    for name in sorted({name for name in names if names.count(name) > 1}):
        root.report.error(root.at("profiles"), f"two profiles are named {name}", "name each once", "duplicate")
    return found


def _backoff(root: Reader) -> BackoffSettings:
    first = root.number("podInitialBackoffSeconds", 1, low=1)
    most = root.number("podMaxBackoffSeconds", 10, low=1)
    if most < first:
        problem = f"it is less than podInitialBackoffSeconds ({first})"
        root.report.error(root.at("podMaxBackoffSeconds"), problem, "write at least that", "out-of-range")
    return BackoffSettings(first * SECOND, max(first, most) * SECOND)


def _profile(place: Reader, common: SchedulerProfile) -> SchedulerProfile:
    place.only("schedulerName", "percentageOfNodesToScore", "plugins", "pluginConfig")
    plugins = place.mapping("plugins")
    check(plugins)
    filters = enabled(plugins, "filter", FILTERS)
    if FIT not in filters:
        problem = f"{FIT} does not filter, so pods would be bound to nodes without enough free resources"
        place.report.warning(plugins.at("filter"), problem, "it still filters in this simulation", "no-fit")
        filters = (*filters, FIT)
    profile = replace(
        common,
        name=place.text("schedulerName", common.name),
        percentage=place.number("percentageOfNodesToScore", common.percentage, low=0, high=100),
        filters=filters,
        scores=weighted(plugins, SCORES),
        preempts=PREEMPTION in enabled(plugins, "postFilter", (PREEMPTION,)),
    )
    return _argued(place, profile)


def _argued(place: Reader, profile: SchedulerProfile) -> SchedulerProfile:
    """The profile with the arguments of its plugins."""
    for one in place.items("pluginConfig"):
        one.only("name", "args")
        name = one.required("name")
        read = ARGUMENTS.get(name)
        if read is not None:
            profile = read(profile, one.mapping("args"))
        elif name:
            one.report.warning(one.at("name"), f"arguments of {name} change nothing here", "leave them", "no-arguments")
    return profile
