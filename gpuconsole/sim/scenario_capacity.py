"""Reads `engine.capacity` and `engine.sharing` of a scenario.

The first has the autoscaler, the instance-type catalogue, spot interruptions and the GPU interconnects (`links`); the
second has GPU partitioning and sharing.
"""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Protocol

import msgspec
from msgspec.structs import replace

from gpuconsole.model.autoscaling import CatalogueError, InstanceTypeCatalogue
from gpuconsole.model.autoscaling import load as load_catalogue
from gpuconsole.model.autoscaling import read as read_catalogue
from gpuconsole.model.clock import MINUTE, SECOND, Span
from gpuconsole.model.cluster import Node
from gpuconsole.model.commands import Submit
from gpuconsole.model.documents.findings import DocumentFindings
from gpuconsole.model.documents.pods_and_selectors import taints
from gpuconsole.model.documents.reader import Reader
from gpuconsole.model.documents.sources import read_file
from gpuconsole.model.gpus import mig_reconfiguration, models
from gpuconsole.model.gpus.mig_reconfiguration import MigStrategy
from gpuconsole.model.gpus.sharing import SharedResource, Sharing, SharingKind
from gpuconsole.model.labels import Taint
from gpuconsole.model.objects import Object
from gpuconsole.model.resources import GPU
from gpuconsole.model.text import clean
from gpuconsole.sim.autoscaling.cluster_autoscaler import offering_of
from gpuconsole.sim.policy import (
    FIXED,
    NO_GPU_SETUP,
    AutoscalerPolicy,
    Capacity,
    Expander,
    GpuSetup,
    KarpenterPolicy,
    Mig,
    ScalingGroup,
    SharingRule,
    SpotPolicy,
    apply_gpu_setup,
)
from gpuconsole.sim.run_times import LogNormal
from gpuconsole.sim.scenario_form import (
    CapacityForm,
    Document,
    EngineForm,
    GroupForm,
    LinksForm,
    MigForm,
    ReplicasForm,
    SharingForm,
    SpotForm,
    SpreadForm,
    Step,
)

CAPACITY_PATH = "engine.capacity"
NO_CATALOGUE = InstanceTypeCatalogue()


class DurationReader(Protocol):
    """Parses durations and their distributions at a path of the file; adds errors to `problems`."""

    problems: list[str]

    def span(self, text: str, path: str) -> Span: ...

    def distribution(self, form: SpreadForm | str, path: str) -> LogNormal: ...


def read_capacity(
    form: CapacityForm, read: DurationReader, folder: Path | None, default: InstanceTypeCatalogue
) -> Capacity:
    """Read the capacity settings; `default` is the default catalogue."""
    if form.kind == "fixed":
        return FIXED
    catalogue = default if form.catalogue is None else _catalogue(form.catalogue, folder, read.problems)
    if not catalogue.types and not read.problems:
        read.problems.append(f"{CAPACITY_PATH}.catalogue: there is no instance-type catalogue; name a file")
    if form.kind == "karpenter":
        return KarpenterPolicy(
            catalogue=catalogue,
            startup=_startup_time(form, read, 45 * SECOND),
            unavailable=form.unavailable,
            spot_to_spot=form.spot_to_spot_consolidation,
        )
    policy = AutoscalerPolicy(
        catalogue=catalogue,
        groups=tuple(
            _group(group, f"{CAPACITY_PATH}.groups[{n}]", read.problems) for n, group in enumerate(form.groups)
        ),
        startup=_startup_time(form, read, 4 * MINUTE),
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
        max_ok_unready=form.ok_total_unready_count,
        max_unready_fraction=form.max_total_unready_percentage / 100,
    )
    _check_groups(policy, read.problems)
    return policy


def read_spot(form: SpotForm, read: DurationReader) -> SpotPolicy:
    """Read the settings of spot interruptions."""
    if form.interruptions < 0 or form.diversity < 0:
        read.problems.append(f"{CAPACITY_PATH}.spot: interruptions and diversity are 0 or more")
    return SpotPolicy(
        notice=read.span(form.notice, f"{CAPACITY_PATH}.spot.notice"),
        interruptions=max(0.0, form.interruptions),
        critical=form.critical_priority,
        diversity=max(0.0, form.diversity),
    )


def _startup_time(form: CapacityForm, read: DurationReader, default: Span) -> LogNormal:
    return (
        LogNormal(median=default)
        if form.startup is None
        else read.distribution(form.startup, f"{CAPACITY_PATH}.startup")
    )


def _group(form: GroupForm, path: str, problems: list[str]) -> ScalingGroup:
    if not 0 <= form.min <= form.max or form.size > form.max:
        problems.append(f"{path}: min {form.min}, size {form.size} and max {form.max} are not in this order")
    return ScalingGroup(
        name=form.name,
        type=form.instance_type,
        zone=form.zone,
        capacity_type=form.capacity_type,
        min_size=form.min,
        max_size=form.max,
        initial_size=form.size,
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


def _catalogue(value: Document | str, folder: Path | None, problems: list[str]) -> InstanceTypeCatalogue:
    if isinstance(value, str):
        return _from_file(value, folder, problems)
    report = DocumentFindings()
    found = read_catalogue(value, report)
    problems.extend(f"{CAPACITY_PATH}.catalogue.{one.path}: {one.problem}; {one.remedy}" for one in report.findings)
    return found


def _from_file(name: str, folder: Path | None, problems: list[str]) -> InstanceTypeCatalogue:
    if folder is None:
        problems.append(f"{CAPACITY_PATH}.catalogue: a file is relative to the scenario's own, and this one has none")
        return NO_CATALOGUE
    return _load_or_default(lambda: load_catalogue((folder / name).read_text(), name), problems)


def _load_or_default(load: Callable[[], InstanceTypeCatalogue], problems: list[str]) -> InstanceTypeCatalogue:
    try:
        return load()
    except CatalogueError as error:
        problems.extend(f"{CAPACITY_PATH}.catalogue: {line}" for line in str(error).splitlines())
    except (OSError, UnicodeDecodeError) as error:
        problems.append(f"{CAPACITY_PATH}.catalogue: {getattr(error, 'strerror', None) or error}")
    return NO_CATALOGUE


SHARING_PATH = "engine.sharing"
_LINKS = "engine.capacity.links"


def read_gpu_setup(form: EngineForm, folder: Path | None, problems: list[str]) -> GpuSetup:
    """Read the GPU setup: sharing and interconnects; errors are added to `problems`."""
    value = form.sharing
    forms = value if isinstance(value, tuple) else (value,)
    paths = [f"{SHARING_PATH}[{n}]" for n in range(len(forms))] if isinstance(value, tuple) else [SHARING_PATH]
    rules = tuple(_sharing_rule(one, path, folder, problems) for one, path in zip(forms, paths, strict=True))
    return GpuSetup(rules=rules, links=_links(form.capacity.links, problems))


def apply_setup_to_objects(objs: Iterable[Object], equipment: GpuSetup, problems: list[str]) -> tuple[Object, ...]:
    """Partition, share and connect the GPUs of the nodes among the objects by the GPU setup; returns all objects."""
    if equipment == NO_GPU_SETUP:
        return tuple(objs)
    return tuple(_apply_setup(obj, equipment, problems) if isinstance(obj, Node) else obj for obj in objs)


def apply_setup_to_steps(steps: Iterable[Step], equipment: GpuSetup, problems: list[str]) -> tuple[Step, ...]:
    """Do the same as `apply_setup_to_objects` for the nodes that steps create."""
    return tuple(
        replace(
            step,
            commands=tuple(
                Submit(apply_setup_to_objects(command.objects, equipment, problems))
                if isinstance(command, Submit)
                else command
                for command in step.commands
            ),
        )
        for step in steps
    )


def _apply_setup(node: Node, equipment: GpuSetup, problems: list[str]) -> Node:
    found: list[str] = []
    made = apply_gpu_setup(node, equipment, found)
    problems.extend(f"{SHARING_PATH}.mig: {problem}" for problem in found)
    return made


def _sharing_rule(form: SharingForm, path: str, folder: Path | None, problems: list[str]) -> SharingRule:
    if form.time_slicing is not None and form.mps is not None:
        problems.append(f"{path}: timeSlicing and mps exclude each other; leave one of them out")
    kind = SharingKind.TIME_SLICING if form.mps is None else SharingKind.MPS
    value = form.time_slicing or form.mps
    return SharingRule(
        node_selector=form.node_selector,
        mig=None if form.mig is None else _mig(form.mig, f"{path}.mig", folder, problems),
        sharing=None if value is None else _sharing(value, kind, path, problems),
    )


def _sharing(form: ReplicasForm, kind: SharingKind, path: str, problems: list[str]) -> Sharing:
    path = f"{path}.{'mps' if kind is SharingKind.MPS else 'timeSlicing'}"
    for number, resource in enumerate(form.resources):
        if resource.replicas < 2:
            problems.append(f"{path}.resources[{number}].replicas: {resource.replicas} shares nothing; write 2 or more")
        if kind is SharingKind.MPS and resource.name != GPU:
            problems.append(f"{path}.resources[{number}].name: MPS shares whole GPUs only; write {GPU}")
    return Sharing(
        kind=kind,
        rename_by_default=form.rename_by_default,
        fail_requests_greater_than_one=form.fail_requests_greater_than_one,
        resources=tuple(SharedResource(name=r.name, replicas=r.replicas, rename=r.rename) for r in form.resources),
    )


def _mig(form: MigForm, path: str, folder: Path | None, problems: list[str]) -> Mig:
    configs = {} if form.configs is None else _mig_configs(form.configs, path, folder, problems)
    if form.dynamic and form.strategy != "mixed":
        problems.append(f"{path}.dynamic: instances that come and go have names of their own; write strategy: mixed")
    config = configs.get(form.config)
    return Mig(strategy=MigStrategy(form.strategy), name=form.config, config=config, dynamic=form.dynamic)


def _mig_configs(
    value: Document | str, path: str, folder: Path | None, problems: list[str]
) -> Mapping[str, mig_reconfiguration.Config]:
    """mig-parted's configurations, inline or in a file."""
    if isinstance(value, dict):
        # JSON is YAML, so the reader of files reads this one, too.
        text, name = msgspec.json.encode(value).decode(), "configs"
    elif folder is None:
        problems.append(
            f"{path}.configs: a file is relative to the scenario's own, and this one has none; write it out"
        )
        return {}
    else:
        source = read_file(folder / value)
        problems.extend(f"{path}.configs: {value}: {one.problem}; {one.remedy}" for one in source.troubles)
        text, name = source.text, value
    configs, findings = mig_reconfiguration.read(text, name)
    problems.extend(f"{path}.configs: {one.path}: {one.problem}; {one.remedy}" for one in findings)
    return configs


def _links(form: LinksForm, problems: list[str]) -> dict[str, str]:
    if form.wiring and not models.is_readable(form.wiring):
        problems.append(f"{_LINKS}.wiring: {clean(repr(form.wiring), 80)} is not nvlink=0-3,4-7 switch=0-1,… numa=…")
    numbers = {models.NVLINK_BANDWIDTH: form.nvlink, models.NETWORK_BANDWIDTH: form.network}
    if any(number is not None and not 0 < number < 1_000_000 for number in numbers.values()):
        problems.append(f"{_LINKS}: nvlink and network are GB/s, 1 or more")
    notes = {name: str(number) for name, number in numbers.items() if number is not None}
    return notes | ({models.WIRING: form.wiring} if form.wiring else {})
