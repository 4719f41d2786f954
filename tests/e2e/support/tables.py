"""Tables as `kubectl get` prints them, cut at their headings; pure.

Enters: text. Leaves: a dictionary for each row. Called by tests that hold printed columns to the truth. Invariant: a
value is what stands below its heading, blank where nothing stands there.
"""

from __future__ import annotations

import re
from itertools import pairwise


def parse(text: str) -> list[dict[str, str]]:
    """Rows by heading. kubectl begins each column where its heading begins; headings have no blank within."""
    heading, *rows = text.splitlines()
    starts = [found.start() for found in re.finditer(r"\S+", heading)]
    spans = [*pairwise(starts), (starts[-1], None)]
    names = heading.split()
    return [
        {name: row[start:end].strip() for name, (start, end) in zip(names, spans, strict=True)} for row in rows if row
    ]
