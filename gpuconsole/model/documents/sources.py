"""Input sources: files, folders and standard input, with limits on size, decoded tolerantly.

Of a folder only manifests are read, not files for other tools (Helm, Kustomize, editors). Markdown and other prose is
searched for YAML blocks.
"""

import os
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from itertools import islice
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from gpuconsole.model.documents.yaml_json import (
    TEMPLATE,
    FormError,
    YamlDocument,
    YamlProblem,
    looks_like_json,
    read_json,
    read_yaml,
    sections,
)
from gpuconsole.model.text import REPLACEMENT

_KEYS = ("apiVersion", "kind")
_SCENARIO = ("steps", "objects", "arrivals", "files")
"""Each of these keys marks a scenario or a saved Snapshot."""
_TOP = tuple(re.compile(rf"^{key}:", re.MULTILINE) for key in _KEYS)
_ANYWHERE = tuple(re.compile(rf"""\b{key}["']?\s*:""") for key in _KEYS)
_KUSTOMIZATIONS = ("kustomization.yaml", "kustomization.yml")
_MOST_CHARACTERS = 1_000_000
"""Most characters of a Kustomization that are read."""


def holds_manifest(text: str) -> bool:
    """True if a text has a manifest (apiVersion and kind), a scenario or a Snapshot.

    Text that cannot be parsed counts as a manifest if it seems to have both fields.
    """
    if all(key.search(text) for key in _TOP):
        return True
    try:
        trees = read_json(text) if looks_like_json(text) else None
    except FormError:
        return True
    if trees is not None:
        return any(_is_manifest(tree.value) for tree in trees)
    return any(_section_holds(section) for section, _ in sections(text))


def _section_holds(text: str) -> bool:
    try:
        return _is_manifest(read_yaml(text).value)
    except FormError:
        return all(key.search(text) for key in _ANYWHERE)


def _is_manifest(value: Any) -> bool:
    return isinstance(value, dict) and (all(key in value for key in _KEYS) or any(key in value for key in _SCENARIO))


def is_chart_template(file: str, text: str) -> bool:
    """True for a file in the templates folder of a Helm chart, or one elsewhere in the chart that must be rendered."""
    above = os.path.dirname(file)
    while above:
        parent, name = os.path.split(above)
        if name == "templates" and os.path.isfile(os.path.join(parent, "Chart.yaml")):
            return True
        if os.path.isfile(os.path.join(above, "Chart.yaml")):
            return _is_template(text)
        above = parent if parent != above else ""
    return False


def _is_template(text: str) -> bool:
    """True if the file can only be read after Helm renders it."""
    if "{{" not in text:
        return False
    try:
        for section, _ in sections(text):
            read_yaml(section)
    except FormError as error:
        return error.problem.code == TEMPLATE
    return False


def kustomize_patches(files: Iterable[str]) -> frozenset[str]:
    """Return the real paths of files that Kustomizations among `files` name as patches: parts of other objects.

    Kustomize: patches[].path, patchesStrategicMerge, patchesJson6902[].path, replacements[].path, configurations.
    """
    found: set[str] = set()
    for file in files:
        if os.path.basename(file) in _KUSTOMIZATIONS:
            folder = os.path.dirname(file)
            found |= {os.path.realpath(os.path.join(folder, name)) for name in _named_in(file)}
    return frozenset(found)


def _named_in(file: str) -> Iterator[str]:
    try:
        with open(file, encoding="utf-8") as stream:
            tree: YamlDocument = read_yaml(stream.read(_MOST_CHARACTERS))
    except (OSError, ValueError, FormError):
        return
    value = tree.value if isinstance(tree.value, dict) else {}
    for key in ("patches", "patchesStrategicMerge", "patchesJson6902", "replacements", "configurations"):
        entries = value.get(key)
        for entry in entries if isinstance(entries, list) else ():
            name = entry.get("path") if isinstance(entry, dict) else entry
            # A patch may be written inline instead of as a file name.
            if isinstance(name, str) and "\n" not in name and "\0" not in name:
                yield name


def matches(file: str, folder: str, patterns: Sequence[str]) -> bool:
    """True if a glob matches a file: its path, as named or from its folder, its name, or a parent folder's name."""
    inner = os.path.relpath(file, folder) if folder else file
    parts = inner.split(os.sep)
    ways = {file, inner, *parts, *(os.sep.join(parts[:n]) for n in range(1, len(parts)))}
    return any(fnmatchcase(way, pattern.removesuffix("/")) for pattern in patterns for way in ways)


LONGEST_HEAD = 1000
"""Most characters of a line that may begin a block."""
_HEAD = re.compile(r"([ \t]*)(apiVersion|kind):[ \t]+[\w./\"'-]+[ \t]*(#.*)?")
_FRAGMENT = re.compile(
    r"([ \t]*)(spec|metadata|status|template|containers|resources|tolerations|affinity|nodeSelector|taints|limits"
    r"|requests|labels|annotations|tasks|plugins|resourceGroups|preemption|topologySpreadConstraints):[ \t]*(#.*)?"
)
_TOP_FIELD = re.compile(r"[a-z][A-Za-z]*:([ \t].*)?")
_NESTED = re.compile(r"""[ \t]+(-([ \t].*)?|["']?[\w./$*<-][^:{}\[\]]*["']?:([ \t].*)?|\#.*|[\]})].*)""")
_SCALAR = re.compile(r".*(:|-)[ \t]+[|>][-+0-9]*[ \t]*(#.*)?")


class Block(Struct, frozen=True):
    """YAML block in a text: its lines without their common indentation, and the number of the first."""

    text: str
    line: int
    is_fragment: bool
    """True for a part of a manifest without kind and apiVersion."""


def looks_like_markdown(text: str) -> bool:
    """True if the first content line of a text does not begin a YAML or JSON document."""
    for line in text.split("\n"):
        stripped = line.strip()
        if stripped and not stripped.startswith(("#", "---", "%")):
            return not (_TOP_FIELD.fullmatch(line) or stripped.startswith(("{", "[", "- ")))
    return False


def blocks(text: str) -> Iterator[Block]:
    """Yield the YAML blocks in a text.

    A block begins at a line with `apiVersion:` or `kind:`, or (a fragment) at a well-known field with nested lines. It
    ends before the first line that does not continue the YAML; lines after a blank line must look like YAML.
    """
    lines = text.split("\n")
    position = 0
    while position < len(lines):
        line = lines[position]
        if ":" not in line or len(line) > LONGEST_HEAD:
            position += 1
            continue
        head = _HEAD.fullmatch(line)
        fragment = None if head else _FRAGMENT.fullmatch(line)
        match = head or fragment
        if match is None or (fragment and not _holds_yaml(lines, position, match[1])):
            position += 1
            continue
        end = _end(lines, position, match[1])
        body = [line[len(match[1]) :] for line in lines[position:end]]
        yield Block("\n".join(body), position + 1, fragment is not None)
        position = end


def _holds_yaml(lines: list[str], position: int, indent: str) -> bool:
    following = lines[position + 1] if position + 1 < len(lines) else ""
    return following.startswith(indent) and bool(_NESTED.fullmatch(following[len(indent) :]))


def _end(lines: list[str], start: int, indent: str) -> int:
    """Return the position after the block's last line, without blank lines and comments at its end."""
    end, blank, scalar = start + 1, False, -1
    heads = {lines[start].split(":")[0].strip()}
    for number in range(start + 1, len(lines)):
        line = lines[number]
        if not line.strip():
            blank = True
            continue
        if not line.startswith(indent):
            break
        line = line[len(indent) :]
        depth = len(line) - len(line.lstrip())
        if scalar >= 0 and depth > scalar:
            end = number + 1
            continue
        if line.startswith("---"):
            heads.clear()
        head = _HEAD.fullmatch(line)
        if not _continues(line, blank) or (head and not depth and head[2] in heads):
            break
        heads |= {head[2]} if head and not depth else set()
        scalar = depth if _SCALAR.fullmatch(line) else -1
        blank = False
        if not line.startswith("#"):
            end = number + 1
    return end


def _continues(line: str, after_blank: bool) -> bool:
    if line[0] in " \t":
        return not after_blank or bool(_NESTED.fullmatch(line))
    if line.startswith("#"):
        return True
    if line.startswith("- ") or line in ("-", "}", "]"):
        return not after_blank
    return line == "---" or line.startswith("--- ") or bool(_TOP_FIELD.fullmatch(line))


MOST_BYTES = 32 * 1024 * 1024
MOST_FILES = 10_000
STDIN = "-"
UNREADABLE = "unreadable"
"""Code of the finding about a file that cannot be opened."""
SUFFIXES = (".yaml", ".yml", ".json")
PROSE = (".txt", ".md", ".markdown", ".rst", ".html")
_UNPRINTABLE = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class SourceText(Struct, frozen=True):
    """Text of one input file, with its name and the problems of its encoding."""

    name: str
    text: str
    troubles: tuple[YamlProblem, ...] = ()
    ignored_in: str = ""
    """Folder in which the file was found, if it is ignored because it is not a manifest; else empty."""

    @property
    def is_manifest(self) -> bool:
        """True if its file name has a YAML or JSON extension."""
        return self.name.lower().endswith(SUFFIXES)

    @property
    def is_prose(self) -> bool:
        """True if its file name is of a format that may embed manifests (such as Markdown)."""
        return self.name.lower().endswith(PROSE)


def read_sources(sources: Sequence[str | Path], stdin: str | None, ignore: Sequence[str] = ()) -> Iterator[SourceText]:
    """Read files, folders (recursively, in a stable order) and `-`, which stands for `stdin`.

    Files that match a glob of `ignore` are not read. Files in a folder that are not manifests are marked by
    `ignored_in`.
    """
    for source in sources:
        if str(source) == STDIN:
            yield from_text(stdin or "", "<stdin>")
        elif os.path.isdir(source):
            yield from _folder(source, ignore)
        elif not (ignore and matches(str(source), "", ignore)):
            yield read_file(source)


def from_text(text: str, name: str) -> SourceText:
    """Create a source from a string."""
    if len(text) > MOST_BYTES:
        return SourceText(name, "", (_too_large(f"{len(text)} characters"),))
    return _cleaned(name, text.removeprefix("\ufeff"), ())


def _too_large(size: str) -> YamlProblem:
    limit = f"{MOST_BYTES // 1024 // 1024} MiB"
    return YamlProblem(
        1, f"it has {size}; at most {limit} are read", f"split it into files of up to {limit}", "too-large"
    )


def _folder(folder: str | Path, ignore: Sequence[str]) -> Iterator[SourceText]:
    """Yield the manifests below a folder; if it has none, texts that may embed manifests."""
    found = list(islice(_below(folder, SUFFIXES), MOST_FILES + 1))
    files = [file for file in found if not (ignore and matches(file, str(folder), ignore))]
    texts = [] if found else list(islice(_below(folder, PROSE), MOST_FILES + 1))
    if not found and not texts:
        problem = "the folder has no manifests"
        yield SourceText(
            str(folder), "", (YamlProblem(1, problem, f"it needs {', '.join(SUFFIXES)} files", "empty-folder"),)
        )
    if len(files) + len(texts) > MOST_FILES:
        problem = f"it holds more than {MOST_FILES} files"
        yield SourceText(str(folder), "", (YamlProblem(1, problem, "name its folders one by one", "too-many-files"),))
        return
    patches = kustomize_patches(found)
    for file in files:
        source = read_file(file)
        is_manifest = _is_read(source, patches)
        yield source if is_manifest else replace(source, ignored_in=str(folder))
    for source in map(read_file, texts):
        if source.troubles or any(True for _ in blocks(source.text)):
            yield source


def _is_read(source: SourceText, patches: Collection[str]) -> bool:
    """True for a manifest in a folder, and for a file that cannot be read, so that it is reported."""
    if source.troubles and not source.text:
        return True
    is_patch = bool(patches) and os.path.realpath(source.name) in patches
    return not is_patch and not is_chart_template(source.name, source.text) and holds_manifest(source.text)


def _below(folder: str | Path, suffixes: tuple[str, ...]) -> Iterator[str]:
    for where, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        yield from (os.path.join(where, name) for name in sorted(files) if name.lower().endswith(suffixes))


def read_file(path: str | Path) -> SourceText:
    """Read one file, bounded; problems are in its `troubles`."""
    name = str(path)
    try:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            # A device or a pipe has size 0 and may never end, so the read is bounded as well.
            data = b"" if size > MOST_BYTES else file.read(MOST_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        problem = f"it cannot be read: {reason}"
        return SourceText(name, "", (YamlProblem(1, problem, "check the path and its permissions", UNREADABLE),))
    if size > MOST_BYTES or len(data) > MOST_BYTES:
        return SourceText(name, "", (_too_large(f"{max(size, len(data))} bytes"),))
    return _decoded(name, data)


def _decoded(name: str, data: bytes) -> SourceText:
    encoding = "utf-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
    try:
        return _cleaned(name, data.decode(encoding), ())
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        problem = f"not valid UTF-8: byte {error.start} is 0x{data[error.start]:02x}"
        trouble = YamlProblem(line, problem, "save the file as UTF-8", "not-utf-8")
        return _cleaned(name, data.decode(encoding, errors="replace"), (trouble,))


def _cleaned(name: str, text: str, troubles: tuple[YamlProblem, ...]) -> SourceText:
    """Replace characters that YAML forbids, such as a NUL byte, so that the rest of the file can still be read."""
    text = text.replace("\r\n", "\n")
    first = _UNPRINTABLE.search(text)
    if first is None:
        return SourceText(name, text, troubles)
    line = text.count("\n", 0, first.start()) + 1
    problem = f"it contains a control character (U+{ord(first[0]):04X})"
    trouble = YamlProblem(line, problem, "remove it; is this a binary file?", "control-character")
    return SourceText(name, _UNPRINTABLE.sub(REPLACEMENT, text), (*troubles, trouble))
