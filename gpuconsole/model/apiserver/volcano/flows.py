"""Validation of Volcano's JobFlows and CronJobs: cycles, schedules and time zones."""

import re
from collections.abc import Iterator, Mapping, Sequence
from zoneinfo import ZoneInfo

from gpuconsole.model.apiserver.jobs.parts import Document, at, entries
from gpuconsole.model.apiserver.volcano.objections import Objection
from gpuconsole.model.apiserver.volcano.order import order_of
from gpuconsole.model.cron import parse_cron
from gpuconsole.model.documents.syntax import label_key

LONGEST_NAME = 52
_ZONE_PART = re.compile(r"[A-Za-z.\-_0-9+]{1,14}")
_NOT_ORDERED = "jobflow Flow is not DAG"


def check_job_flow(flow: Document) -> Iterator[Objection]:
    """Report dependency cycles and missing dependencies."""
    graph = {str(at(one, "name") or ""): _targets(one) for one in entries(flow, "spec", "flows")}
    missing = missing_of(graph)
    if missing is not None:
        text = f"{_NOT_ORDERED}: vertex is not defined: {missing}"
        yield Objection(("spec", "flows"), text, "name a flow that is there", "bad-dependencies")
    elif order_of(graph) is None:
        yield Objection(("spec", "flows"), _NOT_ORDERED, "let no flow depend on itself", "bad-dependencies")


def _targets(flow: object) -> list[str]:
    return list(dict.fromkeys(str(target) for target in entries(flow, "dependsOn", "targets")))


def missing_of(graph: Mapping[str, Sequence[str]]) -> str | None:
    """Return the first dependency that is missing."""
    return next((target for targets in graph.values() for target in targets if target not in graph), None)


def check_cron_job(cron: Document) -> Iterator[Objection]:
    """Validate the schedule, time zone and name of a CronJob."""
    yield from check_schedule(at(cron, "spec") or {})
    yield from check_cron_name(str(at(cron, "metadata", "name") or ""))


def check_schedule(spec: Document) -> Iterator[Objection]:
    """Validate the schedule (five fields without time zone) and the IANA time zone."""
    schedule, zone = spec.get("schedule") or "", spec.get("timeZone")
    text = _schedule_fault(schedule)
    if text:
        yield Objection(("spec", "schedule"), text, "write it as 0 3 * * *", "bad-schedule")
    if zone is None:
        return
    for text in _zone_faults(zone):
        yield Objection(("spec", "timeZone"), text, "write it as Europe/Berlin, or leave it out", "bad-time-zone")


def _schedule_fault(schedule: str) -> str:
    if not schedule:
        return " schedule is required, but got empty"
    if "TZ" in schedule:
        return " schedule should not contain TZ or CRON_TZ, TZ should only be set in the timeZone field"
    try:
        parse_cron(schedule)
    except ValueError:
        return "schedule is not a valid cron expression"
    return ""


def _zone_faults(zone: str) -> Iterator[str]:
    if not zone:
        yield " timeZone must be nil or non-empty string, got empty string"
        return
    for part in zone.split("/"):
        if part in (".", "..") or part.startswith("-") or not _ZONE_PART.fullmatch(part):
            yield " unknown timeZone"
    if zone.lower() == "local":
        yield " timeZone can't be Local, and must be defined in https://www.iana.org/time-zones"
    elif not _is_zone(zone):
        yield " invalid timeZone"


def _is_zone(zone: str) -> bool:
    try:
        ZoneInfo(zone)
    except (ValueError, OSError, KeyError):
        return False
    return True


def check_cron_name(name: str) -> Iterator[Objection]:
    """Validate the length of the name: its jobs' names are eleven characters longer."""
    path = ("metadata", "name")
    faults = label_key(name)
    if len(name) > LONGEST_NAME:
        text = (
            f"cronJob name must be no more than {LONGEST_NAME} characters to accommodate job name suffix (max 63 total)"
        )
        yield Objection(path, text, "shorten it", "too-long")
    elif faults:
        yield Objection(path, f'invalid cronJob name "{name}": {"; ".join(faults)}', "choose another name", "bad-name")
