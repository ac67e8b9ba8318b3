"""YAML blocks in Markdown and other prose."""

import re
from collections.abc import Iterator

from msgspec import Struct

LONGEST_HEAD = 1000
_HEAD = re.compile(r"([ \t]*)(apiVersion|kind):[ \t]+[\w./\"'-]+[ \t]*(#.*)?")
_FRAGMENT = re.compile(
    r"([ \t]*)(spec|metadata|status|template|containers|resources|tolerations|affinity|nodeSelector|taints|limits"
    r"|requests|labels|annotations|tasks|plugins|resourceGroups|preemption|topologySpreadConstraints):[ \t]*(#.*)?"
)
_markdown_blocks_TOP = re.compile(r"[a-z][A-Za-z]*:([ \t].*)?")
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
            return not (_markdown_blocks_TOP.fullmatch(line) or stripped.startswith(("{", "[", "- ")))
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
    return line == "---" or line.startswith("--- ") or bool(_markdown_blocks_TOP.fullmatch(line))
