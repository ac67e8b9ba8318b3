"""Decoding of YAML and JSON documents into structs, with findings that name file, line and field."""

from gpuconsole.model.documents.findings import Finding, Severity
from gpuconsole.model.manifests.decoding import LoadedManifests, UnreadDocument, decode_objects
from gpuconsole.model.manifests.kinds import decode_object
from gpuconsole.model.manifests.loading import NO_MANIFEST, load, load_text

__all__ = [
    "NO_MANIFEST",
    "Finding",
    "LoadedManifests",
    "Severity",
    "UnreadDocument",
    "decode_object",
    "decode_objects",
    "load",
    "load_text",
]
