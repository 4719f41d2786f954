"""The options of `odradek consume`, as values."""

from __future__ import annotations

from dataclasses import dataclass

import click


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumeOptions:
    """What to read: the topics, where to start, and where to stop."""

    topics: tuple[str, ...]
    """Names, or regular expressions with `regex`."""
    regex: bool = False
    partitions: tuple[int, ...] = ()
    """The partitions to read of each topic; empty for all."""
    group: str | None = None
    from_beginning: bool = False
    offset: int | None = None
    timestamp_ms: int | None = None
    last: int | None = None
    """Start at the last records of each partition."""
    last_total: int | None = None
    """Start at the last records of all partitions together."""
    max_records: int | None = None
    until_end: bool = False
    end_offset: int | None = None
    """Stop before this offset."""
    until_ms: int | None = None
    """Stop before the first record at or after this time."""

    @property
    def has_end(self) -> bool:
        """Whether each partition has an end."""
        return self.until_end or self.end_offset is not None or self.until_ms is not None

    def check(self) -> None:
        """Raise `click.UsageError` for options that contradict each other."""
        starts = [self.from_beginning, *(value is not None for value in self._starts())]
        if sum(starts) > 1:
            raise click.UsageError(
                "--from-beginning, --offset, --from-time, --last and --last-total are mutually exclusive."
            )
        if self.group is not None and (self.partitions or any(value is not None for value in self._starts())):
            raise click.UsageError(
                "--group cannot be combined with --offset, --from-time, --last, --last-total or --partition: "
                "the group determines the partitions and the start offsets."
            )
        for name, value in (("--offset", self.offset), ("--end-offset", self.end_offset)):
            if value is not None and (len(self.partitions) != 1 or len(self.topics) != 1 or self.regex):
                raise click.UsageError(f"{name} needs exactly one --partition of one topic.")
        if self.group is not None and self.has_end:
            option = "--until-end" if self.until_end else "--until-time"
            raise click.UsageError(f"{option} cannot be used with --group.")

    def _starts(self) -> tuple[int | None, ...]:
        return (self.offset, self.timestamp_ms, self.last, self.last_total)
