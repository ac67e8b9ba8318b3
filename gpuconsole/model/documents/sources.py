"""Input sources: files, folders and standard input, with limits on size, decoded tolerantly."""

import os
import re
from collections.abc import Collection, Iterator, Sequence
from itertools import islice
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from gpuconsole.model.documents.folders import holds_manifest, is_chart_template, kustomize_patches, matches
from gpuconsole.model.documents.markdown_blocks import blocks
from gpuconsole.model.documents.yamlsafe import YamlProblem
from gpuconsole.model.text import REPLACEMENT

MOST_BYTES = 32 * 1024 * 1024
MOST_FILES = 10_000
STDIN = "-"
UNREADABLE = "unreadable"
"""Code of the finding about a file that cannot be opened."""
SUFFIXES = (".yaml", ".yml", ".json")
PROSE = (".txt", ".md", ".markdown", ".rst", ".html")
_UNPRINTABLE = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class SourceText(Struct, frozen=True):
    """Text of a source with its name and encoding problems."""

    name: str
    text: str
    troubles: tuple[YamlProblem, ...] = ()
    ignored_in: str = ""
    """Folder in which it was found and is ignored because it is not a manifest; else empty."""

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
