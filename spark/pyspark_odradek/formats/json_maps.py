"""Rewrites JSON objects that are maps into lists of pairs, which Arrow's reader can read. Pure.

    {"a": 1, "b": 2}   ->   [{"key":"a","value": 1},{"key":"b","value": 2}]

Arrow reads objects only with known keys. This module finds the brackets, colons and commas outside of strings, assigns
each to its object or list, and follows the schema down to the objects that are maps. All of it works on arrays of
positions; the only loops are over the levels and types of the schema. Text that is not JSON is passed on or refused
with `ArrowInvalid`: the rewriting never makes valid text of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

_OPEN_OBJECT, _OPEN_LIST, _CLOSE_OBJECT, _CLOSE_LIST, _COLON, _COMMA = (ord(char) for char in "{[}]:,")
_QUOTE, _BACKSLASH, _NEWLINE = (ord(char) for char in '"\\\n')
_UNKNOWN: Final = -1

Positions = NDArray[np.int64]


def has_maps(data_type: DataType) -> bool:
    """Whether the type is or contains a map."""
    if isinstance(data_type, StructType):
        return any(has_maps(field.dataType) for field in data_type.fields)
    return isinstance(data_type, MapType) or (isinstance(data_type, ArrayType) and has_maps(data_type.elementType))


@dataclass(frozen=True, slots=True)
class _Node:
    """A struct, list or map of the schema that is or contains a map, and the nodes in it."""

    data_type: DataType
    children: dict[str, int]
    """Numbers of nodes by field; the only key of a list or a map is empty."""


def _nodes(data_type: DataType, found: list[_Node]) -> int:
    """Add the nodes of a type to `found`, and return the number of the first; `_UNKNOWN` without maps."""
    if not has_maps(data_type):
        return _UNKNOWN
    node = _Node(data_type, {})
    found.append(node)
    number = len(found) - 1
    if isinstance(data_type, StructType):
        inner = {field.name: field.dataType for field in data_type.fields}
    else:
        inner = {"": data_type.elementType if isinstance(data_type, ArrayType) else data_type.valueType}  # type: ignore[attr-defined]
    for name, child in inner.items():
        if (child_number := _nodes(child, found)) != _UNKNOWN:
            node.children[name] = child_number
    return number


@dataclass(frozen=True, slots=True)
class _Tokens:
    """The structural characters outside of strings, in order, and the quotes that begin and end strings."""

    data: NDArray[np.uint8]
    quotes: Positions
    position: Positions
    character: NDArray[np.uint8]
    depth: Positions
    """Number of open objects and lists, with the one that the character itself opens or closes."""
    container: Positions
    """Number of the object or list to which the character belongs."""
    opener: Positions
    """Index of the token that opens each object or list."""


def rewrite_maps(block: pa.Buffer, row_type: StructType, rows: int) -> pa.Buffer:
    """Return the text of `rows` objects of the type `row_type`, each with a newline after it, with maps as lists.

    Raises `ArrowInvalid` if brackets or quotes do not match.
    """
    nodes: list[_Node] = []
    _nodes(row_type, nodes)
    tokens = _tokens(np.frombuffer(block, dtype=np.uint8), rows)
    node_of = _assign(tokens, nodes)
    maps = np.array([isinstance(node.data_type, MapType) for node in nodes] + [False])
    return _replaced(tokens, maps[node_of])


def _tokens(data: NDArray[np.uint8], rows: int) -> _Tokens:
    quotes = _unescaped(data, np.flatnonzero(data == _QUOTE))
    newlines = np.flatnonzero(data == _NEWLINE)
    # JSON has no newline in strings. So with this check, each row has a quote for each quote.
    if len(quotes) % 2 or (np.searchsorted(quotes, newlines) % 2).any():
        raise pa.ArrowInvalid("a string has no end")
    structural = np.zeros(256, dtype=np.bool_)
    structural[[_OPEN_OBJECT, _OPEN_LIST, _CLOSE_OBJECT, _CLOSE_LIST, _COLON, _COMMA]] = True
    position = np.flatnonzero(structural[data])
    position = position[np.searchsorted(quotes, position) % 2 == 0]
    character = data[position]
    opens = (character == _OPEN_OBJECT) | (character == _OPEN_LIST)
    closes = (character == _CLOSE_OBJECT) | (character == _CLOSE_LIST)
    level = np.cumsum(opens.astype(np.int64) - closes)
    depth = level + closes
    if not len(level) or level.min() < 0 or level[-1] or np.count_nonzero(opens & (depth == 1)) != rows:
        raise pa.ArrowInvalid("brackets do not match")
    # In the order of their depth, the tokens of an object follow each other: its opener, separators and closer.
    order = np.argsort(depth, kind="stable")
    container = np.empty(len(order), dtype=np.int64)
    container[order] = np.cumsum(opens[order]) - 1
    opener = order[opens[order]]
    lists = character[opener] == _OPEN_LIST
    if ((character == _CLOSE_LIST) != lists[container])[closes].any():
        raise pa.ArrowInvalid("brackets do not match")
    return _Tokens(data, quotes, position, character, depth, container, opener)


def _unescaped(data: NDArray[np.uint8], quotes: Positions) -> Positions:
    """Return the quotes before which there is an even number of backslashes."""
    is_backslash = data == _BACKSLASH
    if not is_backslash.any():
        return quotes
    index = np.arange(len(data), dtype=np.int64)
    last_other = np.maximum.accumulate(np.where(is_backslash, -1, index))
    before = np.maximum(quotes - 1, 0)
    backslashes = np.where(quotes > 0, before - last_other[before], 0)
    unescaped: Positions = quotes[backslashes % 2 == 0]
    return unescaped


def _assign(tokens: _Tokens, nodes: list[_Node]) -> Positions:
    """Return the number of the schema's node for each object and list; `_UNKNOWN` where the schema has no map."""
    node_of = np.full(len(tokens.opener), _UNKNOWN, dtype=np.int64)
    depths = tokens.depth[tokens.opener]
    node_of[depths == 1] = 0
    for depth in range(2, int(depths.max(initial=0)) + 1):
        containers = np.flatnonzero(depths == depth)
        before = tokens.opener[containers] - 1
        if (tokens.depth[before] != depth - 1).any():
            raise pa.ArrowInvalid("a comma or a key is missing")
        parents = node_of[tokens.container[before]]
        if (parents == _UNKNOWN).all():
            break
        for number in np.unique(parents[parents != _UNKNOWN]):
            of_node = parents == number
            node_of[containers[of_node]] = _children(tokens, nodes[number], before[of_node])
        _check_kinds(tokens, nodes, node_of, containers)
    return node_of


def _children(tokens: _Tokens, node: _Node, before: Positions) -> Positions:
    """Return the nodes of the containers that follow the tokens `before`, all of them in one kind of container."""
    if not isinstance(node.data_type, StructType):
        return np.full(len(before), node.children[""], dtype=np.int64)
    keyed = np.searchsorted(tokens.quotes, tokens.position[before])
    if (tokens.character[before] != _COLON).any() or (keyed < 2).any():
        raise pa.ArrowInvalid("a key is missing")
    start, end = tokens.quotes[keyed - 2] + 1, tokens.quotes[keyed - 1]
    bounds = np.zeros(2 * len(start) + 1, dtype=np.int32)
    bounds[0:-1:2], bounds[1::2] = start, end
    bounds[-1] = bounds[-2]
    pieces = pa.Array.from_buffers(pa.binary(), 2 * len(start), [None, pa.py_buffer(bounds), pa.py_buffer(tokens.data)])
    keys = pieces.take(pa.array(np.arange(0, 2 * len(start), 2)))
    names = pa.array([name.encode() for name in node.children], pa.binary())
    found = np.asarray(pc.fill_null(pc.index_in(keys, names), len(names)))
    children: Positions = np.array([*node.children.values(), _UNKNOWN], dtype=np.int64)[found]
    return children


def _check_kinds(tokens: _Tokens, nodes: list[_Node], node_of: Positions, containers: Positions) -> None:
    """Raise `ArrowInvalid` if the schema has a list where the text has an object, or the other way round."""
    lists = np.array([isinstance(node.data_type, ArrayType) for node in nodes])
    known = containers[node_of[containers] != _UNKNOWN]
    if ((tokens.character[tokens.opener[known]] == _OPEN_LIST) != lists[node_of[known]]).any():
        raise pa.ArrowInvalid("an object and a list are mistaken for each other")


def _replaced(tokens: _Tokens, is_map: NDArray[np.bool_]) -> pa.Buffer:
    """Return the text in which the tokens of maps are replaced."""
    count = len(is_map)
    colons = np.bincount(tokens.container[tokens.character == _COLON], minlength=count)
    commas = np.bincount(tokens.container[tokens.character == _COMMA], minlength=count)
    empty = (colons == 0) & (commas == 0)
    if (is_map & ~empty & (colons != commas + 1)).any():
        raise pa.ArrowInvalid("an entry of a map has no key or no value")
    of_map = is_map[tokens.container]
    of_empty = empty[tokens.container]
    character, position = tokens.character, tokens.position
    replacements = {
        b"[": position[of_map & of_empty & (character == _OPEN_OBJECT)],
        b"]": position[of_map & of_empty & (character == _CLOSE_OBJECT)],
        b'[{"key":': position[of_map & ~of_empty & (character == _OPEN_OBJECT)],
        b'},{"key":': position[of_map & (character == _COMMA)],
        b',"value":': position[of_map & (character == _COLON)],
        b"}]": position[of_map & ~of_empty & (character == _CLOSE_OBJECT)],
    }
    lengths = np.ones(len(tokens.data), dtype=np.int64)
    for text, places in replacements.items():
        lengths[places] = len(text)
    target = np.cumsum(lengths) - lengths
    result = np.empty(int(lengths.sum()), dtype=np.uint8)
    result[target] = tokens.data
    for text, places in replacements.items():
        result[target[places][:, None] + np.arange(len(text))] = np.frombuffer(text, dtype=np.uint8)
    return pa.py_buffer(result)
