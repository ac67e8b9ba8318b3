"""config, apis_config: Kueue's Configuration file, read, defaulted, checked and written; its feature gates.

The tables leave some inputs out (files by their paths, commands of client-go): these are in `inputs.yaml`.
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from gpuconsole.model.documents.findings import FieldError, Severity, Silence
from gpuconsole.model.documents.sources import read_file
from gpuconsole.scheduling.kueue import config as gates
from gpuconsole.scheduling.kueue.configuration import form as durations
from gpuconsole.scheduling.kueue.configuration.form import KueueConfigurationForm, with_defaults
from gpuconsole.scheduling.kueue.configuration.loading import decode_configuration, load_text, to_kueue_config
from gpuconsole.scheduling.kueue.configuration.validation import (
    validate,
    validate_custom_labels,
    validate_device_class_mappings,
)
from tests.conformance import world
from tests.conformance.tables import Case, Check, Document, NotModelled, Table, compare
from tests.support.written_configuration import as_document

MANAGER = ("webhook", "leaderElection", "metrics", "health", "pprofBindAddress", "controller", "tls")
"""Compared by what becomes of them in Go (`harnessVars.cfg` has them as they were read)."""


@cache
def _inputs() -> dict[str, Any]:
    import yaml

    found: dict[str, Any] = yaml.safe_load(Path(__file__).with_name("inputs.yaml").read_text())
    return found


def _given(case: Case, document: Document) -> KueueConfigurationForm:
    """The Configuration of a case, as it was written."""
    commands = iter(_inputs()["commands"].get(case.name, ()))
    return decode_configuration(_filled(document, commands), Silence())


def _filled(value: Any, commands: Iterator[Any]) -> Any:
    """The value with what the table skipped."""
    if isinstance(value, Mapping):
        if "$skipped" in value:
            return next(commands)
        if "$cycle" in value:
            raise NotModelled("a field that points at another one")
        return {name: _filled(part, commands) for name, part in value.items()}
    return [_filled(part, commands) for part in value] if isinstance(value, list) else value


def _plain(document: Document) -> dict[str, Any]:
    """A document as tables write it: a struct that holds nothing is absent."""
    empty = ("webhook", "metrics", "health")
    return {name: value for name, value in document.items() if value or name not in empty}


def _without(document: Document, names: Iterable[str]) -> dict[str, Any]:
    return {name: value for name, value in document.items() if name not in names}


def check_defaults(table: Table, case: Case) -> Iterator[str]:
    """TestSetDefaults_Configuration: what a Configuration means where it says nothing."""
    got = as_document(with_defaults(_given(case, case.input["original"])))
    yield from compare("want", _plain(got), _uncycled(case.want["want"]))


def _uncycled(document: Document) -> dict[str, Any]:
    """recoveryTimeout points at timeout where nothing else is said; the dump follows no such pointer."""
    ready = dict(document.get("waitForPodsReady") or {})
    if isinstance(ready.get("recoveryTimeout"), Mapping):
        ready["recoveryTimeout"] = ready["timeout"]
    return {**document, "waitForPodsReady": ready} if ready else dict(document)


def check_load(table: Table, case: Case) -> Iterator[str]:
    """TestLoad: a file becomes a Configuration with its defaults, or an error."""
    got, problem = _load(case.input["configFile"])
    wanted = case.want.get("wantError")
    yield from compare("wantError", problem, wanted["$error"] if wanted else "")
    if not wanted:
        yield from _same(case, got, case.want["wantConfiguration"])


def _same(case: Case, got: dict[str, Any], wanted: Document, *ignored: str) -> Iterator[str]:
    commands = [provider["execConfig"] for provider in _providers(got)]
    want = _filled(wanted, iter(commands))
    yield from compare("wantConfiguration", _without(got, (*MANAGER, *ignored)), _without(want, (*MANAGER, *ignored)))
    if "cfg" in case.variables:
        yield from compare("cfg", _dumped(got), _filled(_uncycled(case.variables["cfg"]), iter(commands)))


def _dumped(document: dict[str, Any]) -> dict[str, Any]:
    """The dump writes the one duration that is a number as a text."""
    controller = dict(document.get("controller") or {})
    if "cacheSyncTimeout" in controller:
        controller["cacheSyncTimeout"] = durations.format_duration(controller["cacheSyncTimeout"])
    return {**document, "controller": controller} if controller else document


def _providers(document: Document) -> list[Any]:
    profile = document.get("multiKueue", {}).get("clusterProfile") or {}
    return [*profile.get("accessProviders", ()), *profile.get("credentialsProviders", ())]


def _load(path: str) -> tuple[dict[str, Any], str]:
    """What a file of the test says, or in Go's words why it cannot be read. No file at all gives the defaults."""
    if not path:
        return as_document(with_defaults(KueueConfigurationForm())), ""
    name = Path(path).name
    if name not in _inputs()["files"]:
        troubles = read_file(path).troubles
        return {}, f"read {path}: " + ", ".join(_go(trouble.problem) for trouble in troubles)
    loaded = load_text(msgspec.json.encode(_inputs()["files"][name]).decode(), name)
    unknown = sorted(finding.problem for finding in loaded.findings if finding.code == "unknown-field")
    if unknown:
        return {}, f"strict decoding error: {', '.join(unknown)}"
    assert loaded.configuration is not None
    return as_document(loaded.configuration), ""


def _go(problem: str) -> str:
    reason = problem.removeprefix("it cannot be read: ")
    return reason[:1].lower() + reason[1:]


def check_tls(table: Table, case: Case) -> Iterator[str]:
    """TestTLSOptionsFeatureGate: TLS settings that cannot be parsed are an error, unless the gate ignores them."""
    document = _inputs()["files"][Path(case.input["configFile"]).name]
    configuration = with_defaults(decode_configuration(document, Silence()))
    faults = [error for error in validate(configuration, case.gates) if error.path[0] == "tls"]
    applied = case.gates.get("TLSOptions", True)
    wanted = case.want.get("wantError")
    yield from compare("wantError", bool(faults) and applied, bool(wanted))
    if not wanted:
        yield from compare("verifyTLSApplied", applied, case.input["verifyTLSApplied"])
        yield from _same(case, as_document(configuration), case.want["wantConfiguration"], "visibilityServer")


def check_encode(table: Table, case: Case) -> Iterator[str]:
    """TestEncode: a Configuration as it is written."""
    yield from compare("wantResult", as_document(_given(case, _uncycled(case.input["cfg"]))), case.want["wantResult"])


def check_ready(table: Table, case: Case) -> Iterator[str]:
    """TestWaitForPodsReadyIsEnabled: is it configured, and not switched off?"""
    document = {**case.input["cfg"], "featureGates": case.input["featureGates"]}
    got = to_kueue_config(_given(case, document)).pods_ready_settings is not None
    yield from compare("want", got, case.want["want"])


def _errors(errors: Iterable[FieldError], *, details: bool) -> list[tuple[str, ...]]:
    return [(error.kind.value, error.field, *((error.detail,) if details else ())) for error in errors]


def _wanted(case: Case, *, details: bool) -> list[tuple[str, ...]]:
    return [
        (error["type"], error["field"], *((error.get("detail", ""),) if details else ()))
        for error in case.want.get("wantErr") or ()
    ]


def check_validate(table: Table, case: Case) -> Iterator[str]:
    """TestValidate: which fields are refused."""
    errors = validate(_given(case, case.input["cfg"]), case.gates)
    yield from compare("wantErr", _errors(errors, details=False), _wanted(case, details=False))


def check_labels(table: Table, case: Case) -> Iterator[str]:
    """TestValidateCustomLabels: which labels of metrics are refused, and why."""
    errors = validate_custom_labels(_given(case, case.input["cfg"]).metrics.custom_labels)
    yield from compare("wantErr", _errors(errors, details=True), _wanted(case, details=True))


def check_mappings(table: Table, case: Case) -> Iterator[str]:
    """TestValidateDeviceClassMappings: which mappings of device classes are refused."""
    configuration = _given(case, case.input["cfg"] or {})
    errors = validate_device_class_mappings(configuration, lambda gate: case.gates.get(gate, gates.GATE_DEFAULTS[gate]))
    yield from compare("wantErr", _errors(errors, details=False), _wanted(case, details=False))


def check_gates(table: Table, case: Case) -> Iterator[str]:
    """TestLoadAndValidateFeatureGates: which gates cannot be set, or not so together."""
    got = gates.gate_errors(case.input["featureGatesCLI"], case.input.get("featureGateMap"), case.gates)
    wanted = [("FieldValueInvalid", "featureGates", problem) for problem in got]
    yield from compare("wantErr", wanted, _wanted(case, details=True))


def check_profiles(table: Table, case: Case) -> Iterator[str]:
    """TestConfigureClusterProfileCacheWithClient: clusters are found by ClusterProfiles where their CRD is there.

    The expected namespaces are a Go function: the Configuration's own one where the CRD is installed, else none.
    """
    crd = {**table.fixtures["multiclusterCRD"], "kind": "CustomResourceDefinition"}
    text = [msgspec.json.encode(table.shared["cfg"]).decode()]
    if case.input["crdPresent"]:
        text.append("{" if case.input["failedGetCRD"] else msgspec.json.encode(crd).decode())
    loaded = load_text("\n---\n".join(text), "cluster.yaml")
    failed = any(finding.severity is Severity.ERROR for finding in loaded.findings)
    yield from compare("wantError", failed, case.want["wantError"])
    if not failed:
        wanted = (table.shared["cfg"]["namespace"],) if case.input["crdPresent"] else ()
        yield from compare("wantOptionsCache", loaded.profile_namespaces, wanted)


def check_managed_fields(table: Table, case: Case) -> Iterator[str]:
    """TestDefaultTransformStripsManagedFields: nothing of who wrote a field is kept of an object."""
    kept, wanted = world.decode(case.input["pod"]), world.decode(case.want["wantPod"])
    yield from compare("wantPod", msgspec.to_builtins(kept), msgspec.to_builtins(wanted))


CHECKS: dict[str, Check] = {
    "apis_config_v1beta2/TestSetDefaults_Configuration": lambda table, case: list(check_defaults(table, case)),
    "config/TestLoad": lambda table, case: list(check_load(table, case)),
    "config/TestTLSOptionsFeatureGate": lambda table, case: list(check_tls(table, case)),
    "config/TestEncode": lambda table, case: list(check_encode(table, case)),
    "config/TestWaitForPodsReadyIsEnabled": lambda table, case: list(check_ready(table, case)),
    "config/TestValidate": lambda table, case: list(check_validate(table, case)),
    "config/TestValidateCustomLabels": lambda table, case: list(check_labels(table, case)),
    "config/TestValidateDeviceClassMappings": lambda table, case: list(check_mappings(table, case)),
    "config/TestLoadAndValidateFeatureGates": lambda table, case: list(check_gates(table, case)),
    "config/TestConfigureClusterProfileCacheWithClient": lambda table, case: list(check_profiles(table, case)),
    "config/TestDefaultTransformStripsManagedFields": lambda table, case: list(check_managed_fields(table, case)),
}
