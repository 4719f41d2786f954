"""Types of fields that several parts of a resource have. Pure.

Each type is what pydantic needs to read a field and to generate its schema. The API server refuses CEL rules whose cost
it cannot bound, so text, lists and mappings have bounds of length.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Any, Final

from pydantic import AfterValidator, Field, GetCoreSchemaHandler, GetJsonSchemaHandler, Strict, ValidationInfo
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from odradek_operator.crds.model import ALLOWED, COMPLAINT, Complaint, Reading, Schema, must, published, refuse

MAX_TEXT: Final = 512
MAX_NAME_LENGTH: Final = 253
"""Longest name of a Kubernetes object (RFC 1123 subdomain)."""
MAX_QUANTITY: Final = 32
MAX_PROPERTIES: Final = 256
MAX_PROPERTY: Final = 8_192
MAX_LABELS: Final = 64
MAX_LABEL: Final = 63

QUANTITY_PATTERN: Final = r"[0-9]+(\.[0-9]+)?(m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?"
"""Kubernetes quantities, without exponents and signs."""
_QUANTITY: Final = re.compile(QUANTITY_PATTERN)
_QUANTITY_ALLOWED: Final = "a quantity such as 100Gi, 2 or 500m"
_UNITS: Final[Mapping[str, Decimal]] = {
    "": Decimal(1),
    "m": Decimal(1).scaleb(-3),
    **{letter: Decimal(1000**power) for power, letter in enumerate("kMGTPE", start=1)},
    **{f"{letter}i": Decimal(1024**power) for power, letter in enumerate("KMGTPE", start=1)},
}
_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_NAME_ALLOWED: Final = (
    f"lower-case letters, digits, '-' and '.', at most {MAX_NAME_LENGTH}, beginning and ending with a letter or digit"
)


def matching(pattern: re.Pattern[str]) -> AfterValidator:
    """Return a rule that only the reader has: the whole text matches. The field's `allowed` describes the pattern."""

    def check(text: str) -> str:
        if pattern.fullmatch(text) is None:
            raise PydanticCustomError("mismatch", "the text does not match")
        return text

    return AfterValidator(check)


_PASSWORD: Final = re.compile(r"password|secret|jaas|credential|\.token$|access[.-]?key|store\.key$", re.IGNORECASE)


def password_problem(key: str, advice: str) -> str | None:
    """Return what is wrong with an option that may be a password, by its name; None if it is none.

    `advice`: what to do instead, as an imperative without a period.
    """
    if _PASSWORD.search(key):
        return f"may be a password, which everybody who may read the resource would see: {advice}."
    return None


Json = Mapping[str, Any]
"""A part of a Kubernetes object that is passed to Kubernetes unchanged."""

Flag = Annotated[bool, Strict()]
Whole = Annotated[int, Strict(), published(format="int64")]
Text = Annotated[str, Strict(), Field(min_length=1)]
Image = Annotated[Text, Field(max_length=MAX_TEXT)]
Name = Annotated[Text, Field(max_length=MAX_NAME_LENGTH)]
ObjectName = Annotated[Name, matching(_NAME), published(allowed=_NAME_ALLOWED)]
"""Name of a Kubernetes object. The schema has only the length, the reader has the pattern too."""


def quantity_value(text: str) -> Decimal:
    """Return the value of a quantity: 1Ki is 1024, 500m is 0.5. Raise `ValueError` if the text is not a quantity."""
    if _QUANTITY.fullmatch(text) is None:
        raise ValueError(f"{text!r} is not {_QUANTITY_ALLOWED}")
    number = text.rstrip("mkKMGTPEi")
    return Decimal(number) * _UNITS[text[len(number) :]]


@dataclass(frozen=True, slots=True)
class Quantities:
    """A Kubernetes quantity, such as 100Gi, 2 or 500m: in documents text or a number, as a value text."""

    at_least: str | None = None
    """Only the reader has this bound. CEL rules can have it for required fields of an object."""
    hint: str = ""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Return the schema of a function that reads the quantity."""
        return core_schema.no_info_plain_validator_function(self.read)

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> Schema:
        """Return Kubernetes' schema of a quantity."""
        return {
            "maxLength": MAX_QUANTITY,
            "minimum": 0,
            "pattern": f"^{QUANTITY_PATTERN}$",
            "x-kubernetes-int-or-string": True,
            ALLOWED: _QUANTITY_ALLOWED,
        }

    def read(self, value: Any) -> str:
        """Return the quantity as text. Raise `PydanticCustomError` if it is not one, or is too small."""
        # YAML reads `size: 10` as a number.
        text = str(value) if type(value) in (int, float) else value
        if not isinstance(text, str) or len(text) > MAX_QUANTITY or _QUANTITY.fullmatch(text) is None:
            raise PydanticCustomError("quantity", "not a quantity")
        if self.at_least is not None and quantity_value(text) < quantity_value(self.at_least):
            raise PydanticCustomError(COMPLAINT, must((), f"at least {self.at_least}{self.hint}", value).message)
        return text


@dataclass(frozen=True, slots=True)
class Amounts(Quantities):
    """A Kubernetes quantity whose value is a whole number, rounded down."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Return the schema of a function that reads the quantity as a number."""
        return core_schema.no_info_plain_validator_function(lambda value: int(quantity_value(self.read(value))))


Quantity = Annotated[str, Quantities()]


@dataclass(frozen=True, slots=True)
class Verbatim:
    """A mapping that is passed to Kubernetes unchanged: Kubernetes validates it."""

    description: str

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Return the schema of any mapping."""
        return core_schema.no_info_after_validator_function(_plain, core_schema.dict_schema())

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> Schema:
        """Return the schema of any mapping."""
        return {"description": self.description, "type": "object", "x-kubernetes-preserve-unknown-fields": True}


def _plain(value: Any) -> Any:
    """Return ordinary dictionaries and lists, without the lines of a document."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list) else value


@dataclass(frozen=True, slots=True)
class Written:
    """A value whose form in documents is another type: `convert` makes the value from it."""

    document: Any
    convert: Callable[[Any], Any]

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Return the schema of the form in documents."""
        return core_schema.no_info_after_validator_function(self.convert, handler.generate_schema(self.document))


EntryCheck = Callable[[str, str, Reading], str | None]
"""A rule of the reader about one entry of a mapping: key, value, where the document comes from; the message or None."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entries:
    """A mapping of text to text. Each wrong entry is a problem by itself."""

    check: EntryCheck | None = None
    max_entries: int | None = None
    max_length: int | None = None
    """Longest value."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Return the schema of a mapping whose entries `_read` reads."""
        entries = core_schema.dict_schema(core_schema.str_schema(), core_schema.any_schema())
        return core_schema.with_info_after_validator_function(self._read, entries)

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> Schema:
        """Return the schema of the mapping."""
        value = self.value_schema() | ({} if self.max_length is None else {"maxLength": self.max_length})
        schema = {"type": "object", "additionalProperties": value}
        return schema if self.max_entries is None else schema | {"maxProperties": self.max_entries}

    def value_schema(self) -> Schema:
        """Return the schema of a value, without its length."""
        return {"type": "string"}

    def text_of(self, value: Any) -> str | None:
        """Return a value as text, or None if it is not allowed."""
        return value if isinstance(value, str) else None

    @property
    def allowed(self) -> str:
        """Which values are allowed."""
        return "text: put it in quotes"

    def _read(self, content: dict[str, Any], info: ValidationInfo[Reading]) -> dict[str, str]:
        found: dict[str, str] = {}
        complaints = []
        if self.max_entries is not None and len(content) > self.max_entries:
            complaints.append(Complaint((), f"must have at most {self.max_entries} entries, found {len(content)}."))
        for key, value in content.items():
            text = self.text_of(value)
            if text is None:
                complaints.append(must((key,), self.allowed, value))
            elif self.max_length is not None and len(text) > self.max_length:
                complaints.append(must((key,), f"at most {self.max_length} characters long", value))
            else:
                found[key] = text
                message = None if self.check is None else self.check(key, text, info.context)
                complaints += [] if message is None else [Complaint((key,), message)]
        refuse(complaints, content)
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class PropertyEntries(Entries):
    """A mapping of properties. Numbers and booleans become the text that Kafka writes.

    The API server accepts text and whole numbers. Only the reader accepts true, false and fractions without quotes.
    """

    max_entries: int | None = MAX_PROPERTIES
    max_length: int | None = MAX_PROPERTY

    def value_schema(self) -> Schema:
        """Return the schema of text or a whole number."""
        return {"x-kubernetes-int-or-string": True}

    def text_of(self, value: Any) -> str | None:
        """Return the text of a property."""
        if isinstance(value, bool):
            return "true" if value else "false"
        return str(value) if isinstance(value, str | int | float) else None

    @property
    def allowed(self) -> str:
        """Which values are allowed."""
        return "text, a number, true or false"


Labels = Annotated[Mapping[str, str], Entries(max_entries=MAX_LABELS, max_length=MAX_LABEL)]


def without_keys(keys: frozenset[str]) -> str:
    """Return the CEL expression that a mapping has none of the keys."""
    return f"[{', '.join(map(repr, sorted(keys)))}].all(key, !(key in self))"
