"""YAML and JSON documents to structs, with findings that name file, line and field."""

from gpuconsole.model.documents.findings import Finding, Severity
from gpuconsole.model.manifests.kinds import decode_object

__all__ = ["Finding", "Severity", "decode_object"]
