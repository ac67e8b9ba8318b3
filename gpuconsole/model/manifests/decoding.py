"""Decoding of objects from documents that were validated elsewhere; reports only documents that cannot be read."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from gpuconsole.model.clock import Time
from gpuconsole.model.documents.findings import Silence
from gpuconsole.model.documents.generated_names import GeneratedNames
from gpuconsole.model.documents.reader import Reader
from gpuconsole.model.job import Job
from gpuconsole.model.jobs.naming import POD, POD_GROUP
from gpuconsole.model.jobs.podgroup import group_of
from gpuconsole.model.manifests.groups import fold_groups
from gpuconsole.model.manifests.kinds import decoder_of, kind_of_document
from gpuconsole.model.manifests.lists import objects_in
from gpuconsole.model.manifests.loaded import LoadedObject
from gpuconsole.model.manifests.unread_kinds import has_no_effect, is_unsimulated
from gpuconsole.model.objects import Object
from gpuconsole.model.text import clean


class UnreadDocument(Struct, frozen=True):
    """Document that gave no object, with its position in the input."""

    position: int
    problem: str


def decode_objects(
    documents: Sequence[Mapping[str, Any]], *, now: Time = 0, names: GeneratedNames | None = None
) -> tuple[tuple[Object, ...], tuple[UnreadDocument, ...]]:
    """Read documents as files are read: lists expanded, plain pods with a queue as jobs, pod groups folded.

    Kinds that have no effect or are not simulated are left out, as in files. `names` generates the names of objects
    with a generateName.
    """
    names = names or GeneratedNames(str(now) if now else "")
    entries: list[tuple[int, LoadedObject]] = []
    unread: list[UnreadDocument] = []
    for position, document in enumerate(documents):
        for found in objects_in(Reader(document, Silence())):
            place = found.reporting(found.report, names.named(found.value))
            group, _, kind = kind_of_document(place.value)
            decoder = decoder_of(place)
            obj = None if decoder is None else decoder(place, now)
            if obj is not None and obj.name:
                entries.append((position, LoadedObject(obj=obj, place=place)))
            elif obj is not None:
                unread.append(UnreadDocument(position, f"the {clean(kind, 60)} has no name"))
            elif not (has_no_effect(group, kind) or is_unsimulated(group, kind)):
                unread.append(
                    UnreadDocument(position, f"{clean(kind, 60) or 'an object without kind'} is not simulated")
                )
    objs = tuple(entry.obj for entry in fold_groups([entry for _, entry in entries]))
    return objs, (*unread, *_lost(entries, objs))


def _lost(entries: Sequence[tuple[int, LoadedObject]], objs: Sequence[Object]) -> Iterator[UnreadDocument]:
    """Yield the pods of incomplete groups, which Kueue holds back."""
    groups = {obj.key for obj in objs if isinstance(obj, Job) and obj.kind == POD_GROUP}
    for position, entry in entries:
        pod = entry.obj
        group = group_of(pod) if isinstance(pod, Job) and pod.kind == POD else ""
        if isinstance(pod, Job) and group and f"{POD_GROUP}/{pod.namespace}/{group}" not in groups:
            yield UnreadDocument(position, f"the pod group {group} lacks pods")
