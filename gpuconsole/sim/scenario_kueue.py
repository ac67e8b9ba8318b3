"""Reads `engine.kueueConfig` of a scenario: Kueue's Configuration, inline or in a separate file."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from gpuconsole.model.documents.findings import DocumentFindings, Finding, Severity
from gpuconsole.scheduling.kueue.config import KueueConfig
from gpuconsole.scheduling.kueue.configuration.form import GROUP, KIND, VERSION
from gpuconsole.scheduling.kueue.configuration.loading import load, policy
from gpuconsole.scheduling.kueue.configuration.reading import read

KUEUE_CONFIG_PATH = "engine.kueueConfig"


def kueue_config(said: dict[str, Any] | str, folder: Path | None, problems: list[str]) -> KueueConfig:
    """Read the Configuration that a scenario contains or names; errors are added to `problems`."""
    if isinstance(said, str):
        return _from_file(said, folder, problems)
    report = DocumentFindings()
    configuration = read({"apiVersion": f"{GROUP}/{VERSION}", "kind": KIND, **said}, report)
    errors = _errors(report.findings)
    problems.extend(f"{KUEUE_CONFIG_PATH}.{error.path}: {error.problem}; {error.remedy}" for error in errors)
    return KueueConfig() if errors else policy(configuration)


def _from_file(name: str, folder: Path | None, problems: list[str]) -> KueueConfig:
    if folder is None:
        problems.append(
            f"{KUEUE_CONFIG_PATH}: a file is relative to the scenario's own, and this one has none; write it out here"
        )
        return KueueConfig()
    loaded = load(folder / name)
    for error in _errors(loaded.findings):
        path = f"{error.path}: " if error.path else ""
        problems.append(f"{KUEUE_CONFIG_PATH}: {error.file}:{error.line}: {path}{error.problem}; {error.remedy}")
    return loaded.config or KueueConfig()


def _errors(findings: Iterable[Finding]) -> list[Finding]:
    return [finding for finding in findings if finding.severity is Severity.ERROR]
