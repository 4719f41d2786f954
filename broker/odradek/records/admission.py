"""From what came to what is kept: a record set is checked, and rewritten where the topic asks for another form.

A record set and the topic's rules enter; the batches to be numbered, stamped and written leave, with their headers.
`PartitionLog.append_as_leader` calls it once per append. Invariant: a set that already has the topic's form leaves as
the very memory that came.
"""

from __future__ import annotations

from typing import NamedTuple

from odradek.records.batch import BatchHeader
from odradek.records.validate import AppendRules, check_append


class Prepared(NamedTuple):
    """What is to be numbered and written."""

    records: memoryview
    headers: tuple[BatchHeader, ...]


def prepare(records: memoryview, rules: AppendRules, first_offset: int) -> Prepared:
    """Check a record set and bring it into the topic's form. Raises what `check_append` raises."""
    return Prepared(records, check_append(records, rules))
