"""Forms of encoded structs as lines of text, without any name of a class or module.

A line is `path: type`, with `= default` where the field may be left out; nested structs follow their field. A struct
with a tag has lines of its own, under its tag, and is `<field=tag>` where it is part of another one.
"""

import json
from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import NODEFAULT, UNSET, Raw, Struct, inspect

MANY = 3
"""A union of more structs with tags has a line for each of them."""
Forms = dict[str, list[str]]
_Fields = inspect.StructType | inspect.TypedDictType


class Walk:
    """Gathers the forms of structs with tags that are reached."""

    def __init__(self) -> None:
        self.tagged: dict[type[Struct], list[str]] = {}
        self._open: list[inspect.StructType] = []

    def lines(self, form: Any) -> list[str]:
        """The form of a type. A struct with a tag is shown under its tag alone."""
        found = list(self._root(inspect.type_info(form)))
        while self._open:
            struct = self._open.pop()
            self.tagged[struct.cls] = list(self._struct(struct, "", ()))
        return found

    def by_tag(self, left_out: frozenset[type[Struct]] = frozenset()) -> Forms:
        """Tag → form of all tagged structs that were reached. A tag that two structs have is numbered."""
        forms: dict[str, list[list[str]]] = {}
        for cls, lines in self.tagged.items():
            if cls not in left_out:
                config = cls.__struct_config__
                forms.setdefault(f"{config.tag_field}={config.tag}", []).append(lines)
        return {
            tag if number == 0 else f"{tag} ({number + 1})": lines
            for tag, found in sorted(forms.items())
            for number, lines in enumerate(sorted(found))
        }

    def _root(self, form: inspect.Type) -> Iterator[str]:
        yield self._text(form)
        yield from self._below(form, "", ())

    def _struct(self, form: _Fields, path: str, above: tuple[type, ...]) -> Iterator[str]:
        if isinstance(form, inspect.StructType):
            config = form.cls.__struct_config__
            said = [name for name in ("omit_defaults", "array_like", "forbid_unknown_fields") if getattr(config, name)]
            if said:
                yield f"{path or '.'} ({', '.join(said)})"
        for field in form.fields:
            place = f"{path}.{field.encode_name}" if path else field.encode_name
            yield f"{place}: {self._text(field.type)}{_default(field)}"
            yield from self._below(field.type, place, (*above, form.cls))

    def _below(self, form: inspect.Type, path: str, above: tuple[type, ...]) -> Iterator[str]:
        """The lines of structs without a tag in this type."""
        structs = list(_structs(form))
        tagged = [one for one in structs if isinstance(one, inspect.StructType) and one.tag is not None]
        if len(tagged) > MANY:
            yield from sorted(f"{path or '.'}: {_tagged(one)}" for one in tagged)
        for struct in structs:
            if isinstance(struct, inspect.StructType) and struct.tag is not None:
                if struct.cls not in self.tagged:
                    self.tagged[struct.cls] = []
                    self._open.append(struct)
            elif struct.cls in above:
                yield f"{path}: as above"
            else:
                yield from self._struct(struct, path, above)

    def _text(self, form: inspect.Type) -> str:
        match form:
            case inspect.Metadata():
                return self._text(form.type)
            case inspect.StructType(tag=None) | inspect.TypedDictType():
                return "struct"
            case inspect.StructType():
                return _tagged(form)
            case inspect.EnumType():
                return f"one of {_values(member.value for member in form.cls)}"
            case inspect.LiteralType():
                return f"one of {_values(form.values)}"
            case inspect.UnionType():
                texts = sorted(map(self._text, form.types))
                tagged = [text for text in texts if text.startswith("<")]
                few = texts if len(tagged) <= MANY else [text for text in texts if text not in tagged]
                return " | ".join(few if few == texts else [*few, "one of these"])
            case inspect.TupleType():
                return f"[{', '.join(map(self._text, form.item_types))}]"
            case inspect.CollectionType() | inspect.VarTupleType():
                return f"[{self._text(form.item_type)}, …]"
            case inspect.DictType():
                return f"{{{self._text(form.key_type)}: {self._text(form.value_type)}}}"
            case inspect.CustomType():
                return "custom"
            case _:
                name = type(form).__name__.removesuffix("Type").lower()
                limits = {key: getattr(form, key) for key in form.__struct_fields__ if getattr(form, key) is not None}
                return f"{name} ({', '.join(f'{key} {value}' for key, value in limits.items())})" if limits else name


def _tagged(form: inspect.StructType) -> str:
    return f"<{form.tag_field}={form.tag}>"


def _structs(form: inspect.Type) -> Iterator[_Fields]:
    """The structs in a type, outermost only."""
    match form:
        case inspect.StructType() | inspect.TypedDictType():
            yield form
        case inspect.Metadata():
            yield from _structs(form.type)
        case inspect.UnionType():
            for one in form.types:
                yield from _structs(one)
        case inspect.TupleType():
            for one in form.item_types:
                yield from _structs(one)
        case inspect.CollectionType() | inspect.VarTupleType():
            yield from _structs(form.item_type)
        case inspect.DictType():
            yield from _structs(form.key_type)
            yield from _structs(form.value_type)


def _values(values: Any) -> str:
    return "|".join(sorted(json.dumps(value, ensure_ascii=False) for value in values))


def _default(field: inspect.Field) -> str:
    if field.required or (field.default is NODEFAULT and field.default_factory is NODEFAULT):
        return ""
    value = field.default_factory() if field.default_factory is not NODEFAULT else field.default
    if value is UNSET:
        return " = unset"
    if isinstance(value, Raw):
        value = bytes(value).decode()
    return f" = {json.dumps(msgspec.to_builtins(value, str_keys=True), ensure_ascii=False, sort_keys=True)}"
