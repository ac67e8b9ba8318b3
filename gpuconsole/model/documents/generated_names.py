"""Names of objects that have only a generateName, formed as the API server forms them, but the same in every run.

The API server cuts the prefix to 58 characters and appends five random ones of an alphabet without vowels
(k8s.io/apiserver/pkg/storage/names/generate.go, k8s.io/apimachinery/pkg/util/rand). Here a sequence takes their place
in which no name of one prefix comes twice.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from hashlib import sha1
from typing import Any

ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
LENGTH = 5
LONGEST_PREFIX = 63 - LENGTH
_NAMES = len(ALPHABET) ** LENGTH
_STEP = 8_675_309
"""Shares no factor with the number of names, so that the sequence visits all of them before one comes again."""


def generated_name(prefix: str, number: int = 0, salt: str = "") -> str:
    """Name the object of this `number` (from 0) among those with one generateName; `salt` begins another sequence."""
    prefix = prefix[:LONGEST_PREFIX]
    digest = sha1(f"{salt}\n{prefix}".encode(errors="replace"), usedforsecurity=False).digest()
    rest = (int.from_bytes(digest[:8]) + number * _STEP) % _NAMES
    suffix = ""
    for _ in range(LENGTH):
        rest, place = divmod(rest, len(ALPHABET))
        suffix += ALPHABET[place]
    return prefix + suffix


def _never(namespace: str, name: str) -> bool:
    return False


class GeneratedNames:
    """Stateful. Names one document after another, so that two with one generateName are two objects.

    `is_taken(namespace, name)` says which names objects have already: the API server, too, tries another one then.
    """

    def __init__(self, salt: str = "", is_taken: Callable[[str, str], bool] = _never) -> None:
        self._salt = salt
        self._is_taken = is_taken
        self._given: Counter[tuple[str, str, str, str]] = Counter()

    def named(self, document: Mapping[str, Any], scope: str = "") -> Mapping[str, Any]:
        """Return the document with a name; itself where it has one, or no prefix. Scopes are counted apart."""
        meta = document.get("metadata")
        if not isinstance(meta, dict) or meta.get("name") not in (None, ""):
            return document
        prefix = meta.get("generateName")
        if not isinstance(prefix, str) or not prefix:
            return document
        namespace = str(meta.get("namespace") or "default")
        key = scope, str(document.get("kind")), namespace, prefix[:LONGEST_PREFIX]
        name = self._next(key, prefix)
        while self._is_taken(namespace, name):
            name = self._next(key, prefix)
        return {**document, "metadata": {**meta, "name": name}}

    def _next(self, key: tuple[str, str, str, str], prefix: str) -> str:
        name = generated_name(prefix, self._given[key], self._salt)
        self._given[key] += 1
        return name
