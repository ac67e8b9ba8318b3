"""Configures the simulated Kueue: Configuration and feature gates of the command line override the scenario's."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import click
from msgspec.structs import replace

from gpuconsole.cli.options import OpenRequest, as_line
from gpuconsole.errors import InputError, UsageError
from gpuconsole.model.documents.findings import Finding, Severity
from gpuconsole.model.documents.reader import Reader
from gpuconsole.model.manifests import LoadedManifests
from gpuconsole.model.objects import Object
from gpuconsole.scheduling.kueue.config import KueueConfig, hami_transformations
from gpuconsole.scheduling.kueue.config import gate_errors as gate_problems
from gpuconsole.scheduling.kueue.config import parse_gates as parse_gates
from gpuconsole.scheduling.kueue.config import resolve_gates as resolve_gates
from gpuconsole.scheduling.kueue.configuration.loading import load_file, read_kueue_configuration
from gpuconsole.scheduling.kueue.configuration.loading import to_kueue_config as policy_of
from gpuconsole.sim.policy import SimPolicy


def gates_of(text: str, named: Mapping[str, bool] | None = None) -> dict[str, bool]:
    """Parse the value of `--feature-gates`, and return the gates that differ from their defaults.

    `named` are the gates of a Configuration: Kueue accepts gates there or in the option, not both. Raises UsageError
    with Kueue's errors.
    """
    wrong = gate_problems(text, named)
    if wrong:
        raise UsageError("\n".join(f"--feature-gates: {problem}" for problem in wrong))
    return resolve_gates(parse_gates(text))


class PolicyError(InputError):
    """Kueue's Configuration has errors, one per line of the message."""


def with_kueue(
    policy: SimPolicy, request: OpenRequest, configurations: Sequence[Reader] = (), objects: Iterable[Object] = ()
) -> SimPolicy:
    """Return the policy with the requested Kueue configuration and feature gates.

    `configurations` are the Configurations among the FILES; --kueue-config replaces them. Without any, quotas of
    `objects` that are useful only with Kueue's documented transformations of HAMi's vGPUs imply these transformations,
    with a notice on stderr. Raises PolicyError where the Configuration cannot be used, UsageError where there is no
    Kueue to configure, or there are several Configurations or wrong feature gates.
    """
    config = _configured(request.kueue_config, configurations)
    if config is None and policy.kueue is not None and not policy.kueue.transformations:
        policy = replace(policy, kueue=_with_hami(policy.kueue, objects))
    if config is None and not request.feature_gates:
        return policy
    if policy.kueue is None:
        raise UsageError(
            "engine.admission of this scenario is none, so there is no Kueue to configure;"
            " remove --kueue-config and --feature-gates"
        )
    named = request.kueue_config is not None or bool(configurations)
    return replace(policy, kueue=_gated(config or policy.kueue, request.feature_gates, named))


def _with_hami(config: KueueConfig, objects: Iterable[Object]) -> KueueConfig:
    transformations = hami_transformations(objects)
    if not transformations:
        return config
    names = " and ".join(sorted(transformations))
    click.echo(
        f"gpuconsole: no Kueue Configuration given; {names} are transformed as Kueue documents it for HAMi"
        " (multiplied by nvidia.com/gpu)",
        err=True,
    )
    return replace(config, transformations=transformations)


def with_configurations(loaded: LoadedManifests) -> LoadedManifests:
    """Return the loaded manifests with additional findings: the errors in Kueue's Configurations among them."""
    findings = [*loaded.findings]
    for place in loaded.configurations:
        findings += _read(place)[1]
    return replace(loaded, findings=tuple(findings))


def _configured(file: Path | None, configurations: Sequence[Reader]) -> KueueConfig | None:
    if file is not None:
        loaded = load_file(file)
        _refuse_errors(loaded.findings)
        return loaded.config
    if len(configurations) > 1:
        where = ", ".join(f"{place.report.file}:{place.report.line_of(place.path)}" for place in configurations)
        raise UsageError(f"found {len(configurations)} Kueue Configurations ({where}); choose one with --kueue-config")
    for place in configurations:
        config, findings = _read(place)
        _refuse_errors(findings)
        return config
    return None


def _read(place: Reader) -> tuple[KueueConfig, Sequence[Finding]]:
    report = place.report.about("Configuration")
    configuration = read_kueue_configuration(place.value, report)
    wrong = any(finding.severity is Severity.ERROR for finding in report.findings)
    return KueueConfig() if wrong else policy_of(configuration), report.findings


def _refuse_errors(findings: Iterable[Finding]) -> None:
    errors = [finding for finding in findings if finding.severity is Severity.ERROR]
    if errors:
        raise PolicyError("\n".join(map(as_line, errors)))


def _gated(config: KueueConfig, text: str, named: bool) -> KueueConfig:
    """The configuration with gates from the command line (`text`).

    `named`: the configuration is a given one, so its own gates exclude the option, as in Kueue.
    """
    if not text:
        return config
    return replace(config, gates={**config.gates, **gates_of(text, config.gates if named and config.gates else None)})
