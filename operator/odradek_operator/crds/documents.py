"""YAML text to documents that remember the line of every field. Pure.

`reader` reads resources from the documents. Only YAML's own types are constructed, so a manifest cannot construct
Python objects. A key that occurs twice in one mapping is an error, because YAML would silently ignore the first one.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, NamedTuple

import yaml

from odradek.base.errors import OdradekError


class DocumentError(OdradekError):
    """The text is not YAML, or a document is not a mapping. The message has the file and the line."""


class LocatedMapping(dict[str, Any]):
    """A YAML mapping with its line and the lines of its keys, from 1."""

    __slots__ = ("line", "lines")

    def __init__(self, line: int) -> None:
        """Create an empty mapping at `line`."""
        super().__init__()
        self.line = line
        self.lines: dict[str, int] = {}


class Document(NamedTuple):
    """One document of a file."""

    source: str
    """Name of the file."""
    number: int
    """Position among the documents of the file, from 1. Empty documents count."""
    content: LocatedMapping


class _Loader(yaml.SafeLoader):
    """The safe loader, with `LocatedMapping` for mappings."""


def _construct_mapping(loader: _Loader, node: yaml.MappingNode) -> Generator[LocatedMapping, None, None]:
    mapping = LocatedMapping(node.start_mark.line + 1)
    # PyYAML needs the mapping before it is filled: an alias inside may refer to it.
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
        # Keys of a merged mapping (<<) may be overridden. Only keys that are written here must differ.
        if id(key_node) in written_out:
            if key in own:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the field {key!r} occurs twice in one mapping", key_node.start_mark
                )
            own.add(key)
        mapping[key] = loader.construct_object(value_node)
        mapping.lines[key] = key_node.start_mark.line + 1


_Loader.add_constructor("tag:yaml.org,2002:map", _construct_mapping)


def parse_documents(text: str, source: str) -> list[Document]:
    """Return every document that is not empty. Raise `DocumentError` for the first that is not a YAML mapping."""
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
