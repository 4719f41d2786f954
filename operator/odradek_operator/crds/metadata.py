"""The metadata of a resource, as far as the operator uses it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Final

from pydantic import BeforeValidator, ConfigDict, Field
from pydantic.alias_generators import to_camel

from odradek_operator.crds.fields import Flag, ObjectName, Text, Whole
from odradek_operator.crds.model import Group, Model
from odradek_operator.objects.names import PAUSED

MAX_CLUSTER_NAME_LENGTH: Final = 40
"""The longest label of a pod, the revision of its StatefulSet, is the name and up to 23 characters; 63 are allowed."""
_MAX_GENERATION: Final = 2**63 - 1

SPECIFICATION: Final = ConfigDict(alias_generator=lambda name: f"spec.{to_camel(name)}", use_attribute_docstrings=True)
"""pydantic's configuration of a resource: fields without an alias are in the group `spec`."""
METADATA: Final = Group(description="Metadata.", required=True, allowed="a mapping with a name", is_open=True)


def _is_paused(annotations: Any) -> bool:
    return isinstance(annotations, Mapping) and annotations.get(PAUSED) == "true"


@dataclass(frozen=True, slots=True, kw_only=True)
class Metadata(Model):
    """Metadata of an object. Kubernetes validates the fields that are not listed here."""

    field_groups: ClassVar[Mapping[str, Group]] = {"metadata": METADATA}

    name: Annotated[ObjectName, Field(alias="metadata.name")] = ""
    namespace: Annotated[ObjectName, Field(alias="metadata.namespace")] = "default"
    uid: Annotated[Text, Field(alias="metadata.uid")] = ""
    """Empty in an embedded cluster."""
    generation: Annotated[Whole, Field(alias="metadata.generation", ge=0, le=_MAX_GENERATION)] = 1
    paused: Annotated[Flag, BeforeValidator(_is_paused), Field(alias="metadata.annotations")] = False
    """The annotation `odradek.dev/paused: "true"`: nothing is changed; the status says so."""
    unknown_fields: Annotated[tuple[str, ...], Field(alias="unknownFields")] = ()
    """Paths of fields that this version does not know. They have no effect. Set by the reader."""
