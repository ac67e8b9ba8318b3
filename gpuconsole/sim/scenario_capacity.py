"""Reads `engine.capacity` of a scenario: autoscaler, instance-type catalogue, spot interruptions."""

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from gpuconsole.model import catalogue as machines_for_sale
from gpuconsole.model.catalogue import CatalogueError, InstanceTypeCatalogue
from gpuconsole.model.clock import MINUTE, SECOND, Span
from gpuconsole.model.documents.findings import DocumentFindings
from gpuconsole.model.documents.pods_and_selectors import taints
from gpuconsole.model.documents.reader import Reader
from gpuconsole.model.labels import Taint
from gpuconsole.sim.autoscaling.ca_scale_up import offering_of
from gpuconsole.sim.autoscaling.policy import (
    FIXED,
    AutoscalerPolicy,
    Capacity,
    Expander,
    KarpenterPolicy,
    ScalingGroup,
    SpotPolicy,
)
from gpuconsole.sim.random_streams import LogNormal
from gpuconsole.sim.scenario_form import CapacityForm, Document, GroupForm, SpotForm, SpreadForm

CAPACITY_PATH = "engine.capacity"
NO_CATALOGUE = InstanceTypeCatalogue()


class Reading(Protocol):
    """Parses values, and collects their errors."""

    problems: list[str]

    def span(self, text: str, path: str) -> Span: ...

    def spread(self, form: SpreadForm | str, path: str) -> LogNormal: ...


def capacity_of(form: CapacityForm, read: Reading, folder: Path | None, usual: InstanceTypeCatalogue) -> Capacity:
    """Read the capacity settings; `usual` is the default catalogue."""
    if form.kind == "fixed":
        return FIXED
    catalogue = usual if form.catalogue is None else _catalogue(form.catalogue, folder, read.problems)
    if not catalogue.types and not read.problems:
        read.problems.append(f"{CAPACITY_PATH}.catalogue: there is no instance-type catalogue; name a file")
    if form.kind == "karpenter":
        return KarpenterPolicy(
            catalogue=catalogue,
            startup=_startup(form, read, 45 * SECOND),
            unavailable=form.unavailable,
            spot_to_spot=form.spot_to_spot_consolidation,
        )
    policy = AutoscalerPolicy(
        catalogue=catalogue,
        groups=tuple(
            _group(group, f"{CAPACITY_PATH}.groups[{n}]", read.problems) for n, group in enumerate(form.groups)
        ),
        startup=_startup(form, read, 4 * MINUTE),
        unavailable=form.unavailable,
        expander=Expander(form.expander),
        scan_interval=max(SECOND, read.span(form.scan_interval, f"{CAPACITY_PATH}.scanInterval")),
        new_pod_delay=read.span(form.new_pod_scale_up_delay, f"{CAPACITY_PATH}.newPodScaleUpDelay"),
        provision_time=read.span(form.max_node_provision_time, f"{CAPACITY_PATH}.maxNodeProvisionTime"),
        unneeded_time=read.span(form.scale_down_unneeded_time, f"{CAPACITY_PATH}.scaleDownUnneededTime"),
        unready_time=read.span(form.scale_down_unready_time, f"{CAPACITY_PATH}.scaleDownUnreadyTime"),
        delay_after_add=read.span(form.scale_down_delay_after_add, f"{CAPACITY_PATH}.scaleDownDelayAfterAdd"),
        delay_after_failure=read.span(
            form.scale_down_delay_after_failure, f"{CAPACITY_PATH}.scaleDownDelayAfterFailure"
        ),
        utilization=form.scale_down_utilization_threshold,
        gpu_utilization=form.scale_down_gpu_utilization_threshold,
        ok_unready=form.ok_total_unready_count,
        most_unready=form.max_total_unready_percentage / 100,
    )
    _check_groups(policy, read.problems)
    return policy


def spot_of(form: SpotForm, read: Reading) -> SpotPolicy:
    """Read the settings of spot interruptions."""
    if form.interruptions < 0 or form.diversity < 0:
        read.problems.append(f"{CAPACITY_PATH}.spot: interruptions and diversity are 0 or more")
    return SpotPolicy(
        notice=read.span(form.notice, f"{CAPACITY_PATH}.spot.notice"),
        interruptions=max(0.0, form.interruptions),
        critical=form.critical_priority,
        diversity=max(0.0, form.diversity),
    )


def _startup(form: CapacityForm, read: Reading, usual: Span) -> LogNormal:
    return LogNormal(median=usual) if form.startup is None else read.spread(form.startup, f"{CAPACITY_PATH}.startup")


def _group(form: GroupForm, path: str, problems: list[str]) -> ScalingGroup:
    if not 0 <= form.min <= form.max or form.size > form.max:
        problems.append(f"{path}: min {form.min}, size {form.size} and max {form.max} are not in this order")
    return ScalingGroup(
        name=form.name,
        type=form.instance_type,
        zone=form.zone,
        capacity_type=form.capacity_type,
        least=form.min,
        most=form.max,
        size=form.size,
        labels=form.labels,
        taints=_taints(form.taints, path, problems),
        priority=form.priority,
    )


def _taints(documents: tuple[Document, ...], path: str, problems: list[str]) -> tuple[Taint, ...]:
    report = DocumentFindings(strict=True)
    found = taints(Reader({"taints": list(documents)}, report), "taints")
    problems.extend(f"{path}.{finding.path}: {finding.problem}; {finding.remedy}" for finding in report.findings)
    return found


def _check_groups(policy: AutoscalerPolicy, problems: list[str]) -> None:
    """Check that groups have unique names, and instance types from the catalogue."""
    names = [group.name for group in policy.groups]
    for number, group in enumerate(policy.groups):
        path = f"{CAPACITY_PATH}.groups[{number}]"
        if group.name in names[:number]:
            problems.append(f"{path}.name: there is another group {group.name}")
        if policy.catalogue.types and offering_of(policy, group) is None:
            where = f" in {group.zone}" if group.zone else ""
            problems.append(f"{path}: the catalogue has no {group.type} {group.capacity_type}{where}")


def _catalogue(said: Document | str, folder: Path | None, problems: list[str]) -> InstanceTypeCatalogue:
    if isinstance(said, str):
        return _from_file(said, folder, problems)
    report = DocumentFindings()
    found = machines_for_sale.read(said, report)
    problems.extend(f"{CAPACITY_PATH}.catalogue.{one.path}: {one.problem}; {one.remedy}" for one in report.findings)
    return found


def _from_file(name: str, folder: Path | None, problems: list[str]) -> InstanceTypeCatalogue:
    if folder is None:
        problems.append(f"{CAPACITY_PATH}.catalogue: a file is relative to the scenario's own, and this one has none")
        return NO_CATALOGUE
    return _tried(lambda: machines_for_sale.load((folder / name).read_text(), name), problems)


def _tried(load: Callable[[], InstanceTypeCatalogue], problems: list[str]) -> InstanceTypeCatalogue:
    try:
        return load()
    except CatalogueError as error:
        problems.extend(f"{CAPACITY_PATH}.catalogue: {line}" for line in str(error).splitlines())
    except (OSError, UnicodeDecodeError) as error:
        problems.append(f"{CAPACITY_PATH}.catalogue: {getattr(error, 'strerror', None) or error}")
    return NO_CATALOGUE
