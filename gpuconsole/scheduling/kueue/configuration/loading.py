"""Loads a Configuration from a file, validates it and converts it to the settings for admission.

The file may hold the Configuration itself or Kueue's installation manifests: their ConfigMap with the Configuration is
found among the other objects.
"""

from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from gpuconsole.model.documents.findings import DocumentFindings, Finding, Severity
from gpuconsole.model.documents.sources import SourceText, from_text, read_file
from gpuconsole.model.documents.yaml_json import (
    FormError,
    YamlDocument,
    YamlProblem,
    looks_like_json,
    named,
    read_json,
    read_yaml,
    sections,
    unwrapped,
)
from gpuconsole.model.text import clean
from gpuconsole.scheduling.kueue.config import KueueConfig
from gpuconsole.scheduling.kueue.configuration.defaults import NAMESPACE
from gpuconsole.scheduling.kueue.configuration.form import GROUP, KIND, VERSION, KueueConfigurationForm
from gpuconsole.scheduling.kueue.configuration.policy import policy
from gpuconsole.scheduling.kueue.configuration.reading import is_configuration, read

MAP_KEY = "controller_manager_config.yaml"


PROFILES = "clusterprofiles.multicluster.x-k8s.io"
"""The CRD that MultiKueue needs to find clusters by ClusterProfile (0.19 config: ConfigureClusterProfileCache)."""


class LoadedConfiguration(Struct, frozen=True, kw_only=True):
    """A Configuration read from a file, with its errors."""

    configuration: KueueConfigurationForm | None
    findings: tuple[Finding, ...] = ()
    profile_namespaces: tuple[str, ...] = ()
    """Namespaces in which Kueue looks for ClusterProfiles: its own, if the file contains their CRD."""

    @property
    def config(self) -> KueueConfig | None:
        """The settings for admission; None if there are errors."""
        wrong = any(finding.severity is Severity.ERROR for finding in self.findings)
        return None if wrong or self.configuration is None else policy(self.configuration)


def load(file: str | Path) -> LoadedConfiguration:
    """Read the Configuration in a file; errors are in the findings."""
    return _load(read_file(file))


def load_text(text: str, name: str = "<text>") -> LoadedConfiguration:
    """Read the Configuration in a text; findings name it `name`."""
    return _load(from_text(text, name))


def _load(source: SourceText) -> LoadedConfiguration:
    name = clean(source.name, 1000)
    findings = [_read_error(name, 1, read_error) for read_error in source.troubles]
    found: list[tuple[KueueConfigurationForm, DocumentFindings]] = []
    profiled = False
    try:
        for number, tree in enumerate(_trees(source), start=1):
            findings += [_read_error(name, number, read_error) for read_error in tree.troubles]
            profiled = profiled or _defines_profiles(tree.value)
            inner = _configuration(tree)
            if inner is not None:
                report = DocumentFindings(name, number, strict=True, line_of=inner.place.find)
                report.object = KIND
                found.append((read(inner.value, report), report))
    except FormError as error:
        findings.append(_read_error(name, 1, error.problem))
    if len(found) != 1 and not findings:
        findings.append(_read_error(name, 1, _not_one(len(found))))
    if not found:
        return LoadedConfiguration(configuration=None, findings=tuple(findings))
    configuration, report = found[0]
    if not profiled:
        _say_unprofiled(configuration, report)
    return LoadedConfiguration(
        configuration=configuration,
        findings=(*findings, *report.findings),
        profile_namespaces=(configuration.namespace or NAMESPACE,) if profiled else (),
    )


def _defines_profiles(document: object) -> bool:
    if not isinstance(document, dict) or document.get("kind") != "CustomResourceDefinition":
        return False
    metadata = document.get("metadata")
    return isinstance(metadata, dict) and metadata.get("name") == PROFILES


def _say_unprofiled(configuration: KueueConfigurationForm, report: DocumentFindings) -> None:
    multi = configuration.multi_kueue
    if multi is not None and multi.cluster_profile is not None:
        problem = f"without the CRD {PROFILES} no cluster is found by its ClusterProfile"
        report.note(("multiKueue", "clusterProfile"), problem, "install it before Kueue starts", "no-crd")


def _trees(source: SourceText) -> Iterator[YamlDocument]:
    trees = read_json(source.text) if looks_like_json(source.text) else None
    if trees is not None:
        yield from trees
    else:
        yield from (read_yaml(text, line) for text, line in sections(source.text))


def _configuration(tree: YamlDocument) -> YamlDocument | None:
    """Return the document if it is a Configuration, or the one in its ConfigMap; else None."""
    inner = unwrapped(tree, named(MAP_KEY))
    return inner if isinstance(inner.value, dict) and is_configuration(inner.value) else None


def _not_one(number: int) -> YamlProblem:
    if number:
        return YamlProblem(1, f"it holds {number} Configurations", "give one at a time", "too-many")
    begins = f"a Configuration begins with apiVersion: {GROUP}/{VERSION} and kind: Configuration"
    return YamlProblem(1, "it holds no Configuration of Kueue", begins, "no-configuration")


def _read_error(name: str, document: int, read_error: YamlProblem) -> Finding:
    report = DocumentFindings(name, document, line_of=lambda path: read_error.line)
    report.error(read_error.path, read_error.problem, read_error.remedy, read_error.code)
    return report.findings[0]
