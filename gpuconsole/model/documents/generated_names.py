"""Names of objects with a generateName, formed as in the API server, but the same in every run.

The API server cuts the prefix to 58 characters and appends five random ones of an alphabet without vowels
(k8s.io/apiserver/pkg/storage/names/generate.go, k8s.io/apimachinery/pkg/util/rand). Here they come from a sequence in
which no name of one prefix is repeated.
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
"""Coprime to the number of names, so that the sequence contains all of them before it repeats."""


def generated_name(prefix: str, number: int = 0, salt: str = "") -> str:
    """Return the name with this `number` (from 0) for one generateName; another `salt` gives another sequence."""
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
    """Names documents with a generateName, so that two with the same one are two objects. Stateful.

    `is_taken(namespace, name)` tells if a name exists already; the next one is tried then, as in the API server.
    """

    def __init__(self, salt: str = "", is_taken: Callable[[str, str], bool] = _never) -> None:
        self._salt = salt
        self._is_taken = is_taken
        self._given: Counter[tuple[str, str, str, str]] = Counter()

    def named(self, document: Mapping[str, Any], scope: str = "") -> Mapping[str, Any]:
        """Return the document with a name; unchanged if it has one, or no generateName. Each scope has its own
        sequence.
        """
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
