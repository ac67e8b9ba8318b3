"""Patterns of names in Kueue's schemas, and validation of domain-prefixed paths."""

import re
from collections.abc import Iterator

from gpuconsole.model.documents.syntax import subdomain

SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
KIND = re.compile(r"[A-Za-z]([-A-Za-z0-9]*[A-Za-z0-9])?")
NODE_LABEL = re.compile(
    r"([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])"
)
REASON = re.compile(r"[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?")
_URL_PATH = re.compile(r"[A-Za-z0-9/\-._~%!$&'()*+,;=:]+")
LONGEST_SUBDOMAIN = 253
LONGEST_LABEL = 63


def domain_path(text: str) -> Iterator[tuple[str, str]]:
    """Yield errors in a controller name, each with the part it is about (IsDomainPrefixedPath)."""
    if not text:
        yield text, "must not be empty"
        return
    domain, slash, path = text.partition("/")
    if not (domain and slash and path):
        yield text, 'must be a domain-prefixed path (such as "acme.io/foo")'
        return
    yield from ((domain, message) for message in subdomain(domain))
    if not _URL_PATH.fullmatch(path):
        yield path, f"Invalid path (regex used for validation is '{_URL_PATH.pattern}')"
