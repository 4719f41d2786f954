"""YAML text to documents that remember the line of every field. Pure.

Enters: the text of a file and its name. Leaves: the documents in order, or a `DocumentError` with the line. `crds`
makes typed resources of them. YAML's own types only, nothing is constructed that a manifest could name; a key that
stands twice in one mapping is an error, because the first would silently be lost.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, NamedTuple

import yaml

from odradek.base.errors import OdradekError


class DocumentError(OdradekError):
    """The text is not YAML, or a document is not a mapping. Names file and line."""


class LocatedMapping(dict[str, Any]):
    """A YAML mapping that knows where it and its keys stand; lines count from 1."""

    __slots__ = ("line", "lines")

    def __init__(self, line: int) -> None:
        """Empty, at `line`."""
        super().__init__()
        self.line = line
        self.lines: dict[str, int] = {}


class Document(NamedTuple):
    """One document of a file."""

    source: str
    """Name of the file, as given."""
    number: int
    """Position among the file's documents, from 1; empty ones count."""
    content: LocatedMapping


class _Loader(yaml.SafeLoader):
    """The safe loader, with `LocatedMapping` for mappings."""


def _construct_mapping(loader: _Loader, node: yaml.MappingNode) -> Generator[LocatedMapping, None, None]:
    mapping = LocatedMapping(node.start_mark.line + 1)
    # Handed out before it is filled, as in PyYAML itself: an alias inside may point back to it.
    yield mapping
    written_out = {id(key) for key, _ in node.value}
    loader.flatten_mapping(node)
    own: set[str] = set()
    for key_node, value_node in node.value:
        key = loader.construct_object(key_node, deep=True)
        if not isinstance(key, str):
            raise yaml.constructor.ConstructorError(
                None, None, f"a field's name must be text, found {key!r}", key_node.start_mark
            )
        # What a merge key (<<) brings in may be overridden; only what is written out here must not repeat.
        if id(key_node) in written_out:
            if key in own:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the field {key!r} stands twice in one mapping", key_node.start_mark
                )
            own.add(key)
        mapping[key] = loader.construct_object(value_node)
        mapping.lines[key] = key_node.start_mark.line + 1


_Loader.add_constructor("tag:yaml.org,2002:map", _construct_mapping)


def parse_documents(text: str, source: str) -> list[Document]:
    """Every document that is not empty. Raises `DocumentError` for the first that is not a YAML mapping."""
    documents = []
    try:
        for index, content in enumerate(yaml.load_all(text, Loader=_Loader), start=1):
            if content is None:
                continue
            if not isinstance(content, LocatedMapping):
                raise DocumentError(f"{source}: document {index} must be a mapping with apiVersion, kind and spec.")
            documents.append(Document(source, index, content))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = source if mark is None else f"{source}:{mark.line + 1}"
        raise DocumentError(f"{where}: this is not valid YAML: {error.problem}.") from error
    except yaml.YAMLError as error:
        raise DocumentError(f"{source}: this is not valid YAML: {' '.join(str(error).split())}.") from error
    return documents
