"""Parses tables that `kubectl get` prints; pure.

Returns a dictionary for each row. Used by tests that check printed columns. Invariant: a value is the text below its
heading, empty if there is no text.
"""

from __future__ import annotations

import re
from itertools import pairwise


def parse(text: str) -> list[dict[str, str]]:
    """The rows, by heading. kubectl starts each column where its heading starts; headings contain no spaces."""
    heading, *rows = text.splitlines()
    starts = [found.start() for found in re.finditer(r"\S+", heading)]
    spans = [*pairwise(starts), (starts[-1], None)]
    names = heading.split()
    return [
        {name: row[start:end].strip() for name, (start, end) in zip(names, spans, strict=True)} for row in rows if row
    ]
