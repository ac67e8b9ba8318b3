"""KAI's webhooks: pod groups, queues, and GPU fractions in pod annotations (KAI 0.13).

KAI: v2alpha2 podgroup_webhook, v2 queue_webhook, gpu-request validator, admission gpusharing webhook.
"""

import re
from collections.abc import Iterator, Mapping

from gpuconsole.model.apiserver.jobs.framework import Document, at, entries
from gpuconsole.model.apiserver.volcano.queues_and_pod_groups import Objection
from gpuconsole.model.documents.findings import MapKey
from gpuconsole.model.resources import GPU

_GROUPS = ("spec", "subGroups")


def check_pod_group(group: Document) -> Iterator[Objection]:
    """Report the first error in the sub-groups of a pod group: a duplicate name, a missing parent, or a cycle."""
    groups = list(entries(group, *_GROUPS))
    names = [str(at(found, "name") or "") for found in groups]
    for n, name in enumerate(names):
        if name in names[:n]:
            yield Objection((*_GROUPS, n, "name"), f"duplicate subgroup name {name}", "name it otherwise", "duplicate")
            return
    parents = {name: str(at(found, "parent") or "") for name, found in zip(names, groups, strict=True)}
    for n, (name, parent) in enumerate(parents.items()):
        if parent and parent not in parents:
            text = f"parent {parent} of {name} was not found"
            yield Objection((*_GROUPS, n, "parent"), text, f"define a sub-group {parent}", "undefined-sub-group")
            return
    for n, name in enumerate(names):
        if _is_in_cycle(name, parents):
            text = "cycle detected in subgroups"
            yield Objection((*_GROUPS, n, "parent"), text, "let one of them have no parent", "cycle")
            return


def _is_in_cycle(name: str, parents: Mapping[str, str]) -> bool:
    seen: set[str] = set()
    while name and name not in seen:
        seen.add(name)
        name = parents.get(name, "")
    return bool(name)


def check_queue(queue: Document) -> Iterator[Objection]:
    """Validate that a queue states its resources, even if they are 0."""
    if at(queue, "spec", "resources") is None:
        text = "resources must be specified"
        yield Objection(("spec", "resources"), text, "give it gpu, cpu and memory, each with a quota", "required")


FRACTION, MEMORY, DEVICES, MPS = "gpu-fraction", "gpu-memory", "gpu-fraction-num-devices", "mps"
_ANNOTATIONS = ("metadata", "annotations")
_WHOLE = re.compile(r"\d+")


def check_gpu_request(pod: Document, *, sharing: bool = True) -> Iterator[Objection]:
    """Report the first error in a pod's annotations for GPU sharing.

    Without `sharing` it may request neither a fraction nor memory of a GPU.
    """
    notes = at(pod, *_ANNOTATIONS)
    notes = notes if isinstance(notes, dict) else {}
    if not any(name in notes for name in (FRACTION, MEMORY, DEVICES, MPS)):
        return
    name = f"{at(pod, 'metadata', 'namespace') or ''}/{at(pod, 'metadata', 'name') or ''}"
    if not sharing and (FRACTION in notes or MEMORY in notes):
        text = f"attempting to create a pod {name} with gpu sharing request, while GPU sharing is disabled"
        yield _about(FRACTION if FRACTION in notes else MEMORY, text, "ask for whole GPUs")
        return
    yield from _first(_combinations(notes, _asks_for_whole(pod)), _amounts(notes))


def _first(*found: Iterator[Objection]) -> Iterator[Objection]:
    objection = next((one for some in found for one in some), None)
    if objection is not None:
        yield objection


def _combinations(notes: Document, whole: bool) -> Iterator[Objection]:
    if not (FRACTION in notes or MEMORY in notes) and notes.get(MPS) == "true":
        yield _about(MPS, "MPS is only supported with GPU fraction request", f"add {FRACTION}")
    if FRACTION in notes and whole:
        text = "cannot have both GPU fraction request and whole GPU resource request/limit"
        yield _about(FRACTION, text, f"leave {GPU} out")
    if MEMORY in notes and (FRACTION in notes or whole):
        yield _about(MEMORY, "cannot request both GPU and GPU memory", f"keep {MEMORY} alone")
    if DEVICES in notes and not (FRACTION in notes or MEMORY in notes):
        text = "cannot request multiple fractional devices without specifying fraction portion or gpu-memory"
        yield _about(DEVICES, text, f"add {FRACTION} or {MEMORY}")


def _amounts(notes: Document) -> Iterator[Objection]:
    if MEMORY in notes and not _positive(notes[MEMORY]):
        text = "gpu-memory annotation value must be a positive integer greater than 0"
        yield _about(MEMORY, text, 'write it in MiB, as "20000"')
    if FRACTION in notes and not 0 < _number(notes[FRACTION]) < 1:
        text = "gpu-fraction annotation value must be a positive number smaller than 1.0"
        yield _about(FRACTION, text, 'write it as "0.5"; whole GPUs are asked for as a resource')
    if DEVICES in notes and not _positive(notes[DEVICES]):
        text = "fraction count annotation value must be a positive integer greater than 0"
        yield _about(DEVICES, text, 'write it as "2"')


def _positive(value: object) -> bool:
    return isinstance(value, str) and _WHOLE.fullmatch(value) is not None and int(value[:40]) > 0


def _number(value: object) -> float:
    """Parse a number; 0, which is never valid, for anything else."""
    try:
        return float(value[:40]) if isinstance(value, str) else 0.0
    except ValueError:
        return 0.0


def _asks_for_whole(pod: Document) -> bool:
    containers = [*entries(pod, "spec", "containers"), *entries(pod, "spec", "initContainers")]
    return any(at(container, "resources", "limits", GPU) is not None for container in containers)


def _about(name: str, text: str, remedy: str) -> Objection:
    return Objection((*_ANNOTATIONS, MapKey(name)), text, remedy, "gpu-sharing")
