"""Cross-object checks by Volcano's webhooks for queues and jobs."""

from collections.abc import Mapping
from typing import Any

from gpuconsole.model.apiserver.volcano import hierarchy, jobs
from gpuconsole.model.apiserver.volcano.groups import check_group_queue
from gpuconsole.model.apiserver.volcano.objections import report
from gpuconsole.model.apiserver.volcano.queues import check_hierarchy
from gpuconsole.model.apiserver.volcano.shapes import QUEUE_SHAPE, fits
from gpuconsole.model.documents.reader import Reader
from gpuconsole.model.manifests.loaded import LoadedObject

Document = Mapping[str, Any]
BUILT_IN: Mapping[str, Document] = {
    name: {"metadata": {"name": name}, "status": {"state": "Open"}} for name in ("default", "root")
}


def known_queues(entries: Mapping[str, LoadedObject]) -> dict[str, Document]:
    """Return the input's queues and the built-in ones, as Volcano's controller initializes them: open unless they
    state otherwise.
    """
    found = dict(BUILT_IN)
    for name, entry in entries.items():
        document = entry.place.value
        if fits(document, QUEUE_SHAPE):
            status = {"state": "Open", **(document.get("status") or {})}
            found[name] = {**document, "status": status}
    return found


def check_volcano_queue(place: Reader, queues: Mapping[str, Document]) -> None:
    """Report errors in a queue's annotations, parent, depth and amounts; if its parent is missing, only in its
    annotations.
    """
    document = place.value
    if not fits(document, QUEUE_SHAPE):
        return
    report(place.report, place.path, check_hierarchy(document, queues))
    if hierarchy.parent_of(document) in ("", *queues):
        report(place.report, place.path, hierarchy.among(document, queues))


def check_queue_of_job(place: Reader, queues: Mapping[str, Document]) -> None:
    """Report a job's queue that is missing, not open, or has child queues."""
    spec = {"queue": "default", **place.mapping("spec").value}
    report(place.report, place.path, jobs.check_queue({"spec": spec}, queues))


def check_queue_of_group(place: Reader, queues: Mapping[str, Document]) -> None:
    """Report a PodGroup's queue that is missing or not open."""
    report(place.report, place.path, check_group_queue({"spec": place.mapping("spec").value}, queues))
