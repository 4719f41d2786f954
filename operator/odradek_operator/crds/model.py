"""The base class of the resource model: how a dataclass describes a part of a resource. Pure.

A part of a resource is a frozen dataclass. Each field has a type, a default, bounds (pydantic's `Field`) and an
attribute docstring. pydantic reads documents into the dataclass and generates the JSON schema; this module adds what
pydantic does not have: CEL rules, groups, and rules of the reader that report several fields at once. The values that
the code builds itself are not validated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final, NamedTuple

from pydantic import ConfigDict, Field, GetCoreSchemaHandler, GetJsonSchemaHandler, ValidationError, ValidationInfo
from pydantic.alias_generators import to_camel
from pydantic_core import CoreSchema, InitErrorDetails, PydanticCustomError, core_schema

from odradek_operator.crds.problems import shown

Schema = dict[str, Any]
Location = tuple[str | int, ...]
COMPLAINT: Final = "complaint"
"""The error type of a `Complaint`: its text is the whole message."""
ALLOWED: Final = "x-allowed"
"""Keyword of the internal schema: what the field allows, in words. Not published."""
DEFAULT: Final = "x-default"
"""Keyword of the internal schema: the published default, if it is not the default of the dataclass."""
RULES: Final = "x-kubernetes-validations"


@dataclass(frozen=True, slots=True)
class Reading:
    """Where the document comes from: pydantic's validation context."""

    embedded: bool
    """Whether it is a manifest of an embedded cluster, not an object of the API server."""


class Complaint(NamedTuple):
    """A problem that a rule of the reader finds."""

    location: Location
    """Relative to the part that the rule belongs to."""
    message: str


class Rule(NamedTuple):
    """A CEL rule, which the API server checks, and the message that users see if it does not hold."""

    cel: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A mapping in the document that has no value type: the fields in it are fields of the enclosing dataclass.

    A field belongs to the group if its alias starts with the name of the group and a dot.
    """

    description: str
    rules: tuple[Rule, ...] = ()
    needs: tuple[str, ...] = ()
    """Fields that must be present if the group is."""
    default: Schema | None = None
    required: bool = False
    allowed: str = "a mapping"
    is_open: bool = False
    """Whether other fields are accepted."""


def published(
    *rules: Rule,
    allowed: str | None = None,
    list_key: str | None = None,
    **extra: Any,
) -> Any:
    """Return metadata for the schema of a field: CEL rules, and other keywords.

    `allowed` says in messages what the field allows. `list_key` names the field that identifies the entries of a list.
    `default`, in `extra`, replaces the default in the schema; None removes it.
    """
    schema: Schema = {}
    if rules:
        schema[RULES] = _cel(rules)
    if allowed is not None:
        schema[ALLOWED] = allowed
    if list_key is not None:
        schema |= {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [list_key]}
    if "default" in extra:
        schema[DEFAULT] = extra.pop("default")
    return Field(json_schema_extra=schema | extra)


def must(location: Location, allowed: str, found: Any) -> Complaint:
    """Return the complaint that a value is not allowed."""
    return Complaint(location, f"must be {allowed}, found {shown(found)}.")


def repeated(part: Mapping[str, Any], alias: str, field: str, others: str) -> Iterator[Complaint]:
    """Complain of each entry of a list whose field has the same value as that of an earlier entry."""
    entries = part.get(alias)
    seen: list[Any] = []
    for index, entry in enumerate(entries if isinstance(entries, list) else ()):
        if isinstance(entry, Mapping) and (value := entry.get(field)) is not None:
            if value in seen:
                yield must((alias, index, field), f"different from {others}", value)
            seen.append(value)


def refuse(complaints: Iterable[Complaint], value: Any, errors: Iterable[InitErrorDetails] = ()) -> None:
    """Raise `ValidationError` if there are complaints or errors. Complaints at the place of an error are dropped."""
    details = list(errors)
    places = {each["loc"] for each in details}
    details += [
        InitErrorDetails(type=PydanticCustomError(COMPLAINT, message), loc=location, input=value)
        for location, message in complaints
        if location not in places
    ]
    if details:
        raise ValidationError.from_exception_data("resource", details)


Check = Callable[[Mapping[str, Any], Reading], Iterable[Complaint]]
"""A rule of the reader. It gets groups and fields by alias as the document has them: of any type, without nulls."""


class Model:
    """Base of the dataclasses that describe parts of a resource."""

    __slots__ = ()
    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(alias_generator=to_camel, use_attribute_docstrings=True)
    field_groups: ClassVar[Mapping[str, Group]] = {}
    cel_rules: ClassVar[tuple[Rule, ...]] = ()
    checks: ClassVar[tuple[Check, ...]] = ()

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Return pydantic's schema of the dataclass, wrapped into `_read`."""
        schema: Any = handler.resolve_ref_schema(handler(source))
        # pydantic uses the schema of a type again by its reference. Without it, only the first use would have `_read`.
        reference = schema.pop("ref")
        return core_schema.with_info_wrap_validator_function(cls._read, schema, ref=reference)

    @classmethod
    def _read(cls, data: Any, handler: Callable[[Any], Any], info: ValidationInfo[Reading]) -> Any:
        """Read the part. All of its problems are raised at once: those of fields, groups and rules."""
        if not isinstance(data, Mapping):
            return handler(data)
        flat, errors = cls._ungrouped(data)
        # Required fields of a group that cannot be read are not reported as well.
        unreadable = {str(each["loc"][0]) for each in errors}
        value = None
        try:
            value = handler(flat)
        except ValidationError as error:
            found = [_details(each) for each in error.errors(include_url=False, include_context=False)]
            errors += [each for each in found if str(each["loc"][0]).partition(".")[0] not in unreadable]
        refuse([each for check in cls.checks for each in check(flat, info.context)], data, errors)
        return value

    @classmethod
    def _ungrouped(cls, data: Mapping[str, Any]) -> tuple[dict[str, Any], list[InitErrorDetails]]:
        """Return the fields by alias, without nulls, and errors about the groups."""
        flat = {name: item for name, item in data.items() if item is not None and "." not in name}
        errors: list[InitErrorDetails] = []
        for name, group in cls.field_groups.items():
            content = flat.get(name)
            if isinstance(content, Mapping):
                fields = {f"{name}.{inner}": item for inner, item in content.items() if item is not None}
                lacking = [f"{name}.{inner}" for inner in group.needs if f"{name}.{inner}" not in fields]
                errors += [InitErrorDetails(type="missing", loc=(alias,), input=content) for alias in lacking]
                flat |= fields
            elif content is not None:
                del flat[name]
                errors.append(InitErrorDetails(type="dict_type", loc=(name,), input=content))
            elif group.required:
                errors.append(InitErrorDetails(type="missing", loc=(name,), input=data))
        return flat, errors

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> Schema:
        """Return the schema of the part, with its groups as mappings and its CEL rules."""
        reference = handler(core)
        schema = handler.resolve_ref_schema(reference)
        if cls.cel_rules:
            schema[RULES] = _cel(cls.cel_rules)
        if cls.field_groups:
            schema["properties"], schema["required"] = _grouped(schema, cls.field_groups)
        return reference


def _details(error: Any) -> InitErrorDetails:
    return InitErrorDetails(
        type=PydanticCustomError(error["type"], error["msg"]), loc=error["loc"], input=error["input"]
    )


def _cel(rules: Iterable[Rule]) -> list[Schema]:
    return [{"rule": each.cel, "message": each.message} for each in rules]


def _grouped(schema: Schema, groups: Mapping[str, Group]) -> tuple[Schema, list[str]]:
    """Return the properties and the required names with each group as an object."""
    properties: Schema = {}
    required = [name for name, group in groups.items() if group.required]
    for alias, inner in schema["properties"].items():
        name, dot, field = alias.partition(".")
        is_required = alias in schema.get("required", ())
        if not dot:
            properties[name] = inner
            required += [name] if is_required else []
            continue
        group = properties.setdefault(name, _group_schema(groups[name]))
        group["properties"][field] = inner
        if is_required:
            group["required"].append(field)
    return properties, required


def _group_schema(group: Group) -> Schema:
    schema: Schema = {
        "description": group.description,
        "type": "object",
        "required": list(group.needs),
        "properties": {},
        ALLOWED: group.allowed,
    }
    if group.rules:
        schema[RULES] = _cel(group.rules)
    if group.default is not None:
        schema[DEFAULT] = group.default
    if group.is_open:
        schema["x-kubernetes-preserve-unknown-fields"] = True
    return schema
