"""`odradek group reset`: changes the committed offsets of consumer groups, as `kafka-consumer-groups --reset-offsets`.

Every group is read and checked before the first one is changed.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from odradek.base.errors import ConfigError, NonEmptyGroupError, UnknownMemberIdError, UnknownTopicOrPartitionError
from odradek.base.types import NO_OFFSET, TopicPartition
from odradek.cli.completion.completers import complete_groups
from odradek.cli.groups import reset_plans
from odradek.cli.records.time_options import parse_time
from odradek.cli.shared import (
    client_settings,
    connection_options,
    echo_json,
    message_with_hint,
    output_option,
    run,
)
from odradek.cli.tables import show

if TYPE_CHECKING:
    from odradek.client.admin import Admin
    from odradek.client.models import GroupDescription, OffsetAndMetadata

_INACTIVE: Final = ("Empty", "Dead")
"""States of a group without members. A group that does not exist is Dead; setting its offsets creates it."""

_QUIET_SECONDS: Final = 3.0
"""Time without output after which the progress is shown."""


def _parse_duration(_context: click.Context, _parameter: click.Parameter, value: str | None) -> int | None:
    if value is None:
        return None
    try:
        return reset_plans.duration_ms(value)
    except ValueError as error:
        raise click.BadParameter(f"{error}.") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetOptions:
    """Which offsets are reset, and to what: exactly one target is given."""

    groups: tuple[str, ...]
    topics: tuple[str, ...] = ()
    all_topics: bool = False
    to_earliest: bool = False
    to_latest: bool = False
    to_current: bool = False
    to_offset: int | None = None
    shift_by: int | None = None
    to_datetime: int | None = None
    """Milliseconds since 1970 UTC."""
    by_duration: int | None = None
    """Milliseconds before now."""
    from_file: str | None = None
    scope: reset_plans.Scope = field(init=False)

    def __post_init__(self) -> None:
        """Raise `click.UsageError` for options that exclude each other, and if one is missing."""
        flags = (self.to_earliest, self.to_latest, self.to_current)
        values = (self.to_offset, self.shift_by, self.to_datetime, self.by_duration, self.from_file)
        if sum(flags) + sum(value is not None for value in values) != 1:
            raise click.UsageError(
                "Give one target: --to-earliest, --to-latest, --to-current, --to-offset, --shift-by, --to-datetime, "
                "--by-duration or --from-file."
            )
        if self.from_file is not None:
            if self.topics or self.all_topics:
                raise click.UsageError("--from-file names the partitions; it excludes --topic and --all-topics.")
        elif bool(self.topics) == self.all_topics:
            raise click.UsageError("Give the partitions: --topic or --all-topics.")
        object.__setattr__(self, "scope", reset_plans.parse_scope(self.topics))


@click.command()
@click.argument("groups", nargs=-1, required=True, metavar="GROUP…", shell_complete=complete_groups)
@click.option(
    "--topic",
    "topics",
    multiple=True,
    metavar="TOPIC[:PARTITION,…]",
    help="Reset the offsets of this topic, or of some of its partitions; repeatable.",
)
@click.option("--all-topics", is_flag=True, help="Reset all committed offsets of the groups.")
@click.option("--to-earliest", is_flag=True, help="To the first record.")
@click.option("--to-latest", is_flag=True, help="To the end: the next record that is produced.")
@click.option(
    "--to-current", is_flag=True, help="To the committed offset, or to the end without one: with --export, a backup."
)
@click.option("--to-offset", type=click.IntRange(0), metavar="OFFSET", help="To this offset.")
@click.option("--shift-by", type=int, metavar="N", help="Forward by N records; back if N is negative.")
@click.option(
    "--to-datetime",
    callback=parse_time,
    metavar="TIME",
    help="To the first record at or after this time: ISO 8601, in UTC without a zone, milliseconds since 1970, or "
    "such as -1h.",
)
@click.option(
    "--by-duration",
    callback=_parse_duration,
    metavar="DURATION",
    help="To the first record of this last time, such as P7D or PT1H30M (ISO 8601).",
)
@click.option(
    "--from-file",
    type=click.Path(exists=True, dir_okay=False),
    metavar="CSV",
    help="To the offsets of a file that --export or kafka-consumer-groups has written.",
)
@click.option("--execute", is_flag=True, help="Change the offsets. Without it, they are only shown.")
@click.option("--export", is_flag=True, help="Print the new offsets as CSV, as kafka-consumer-groups does.")
@connection_options
@output_option
def reset(*, execute: bool, export: bool, bootstrap: str, as_json: bool, **given: object) -> None:
    """Reset the committed offsets of groups. Without --execute, only show what would change.

    A group must have no members: stop its consumers first. Offsets outside the log are moved to its start or end, with
    a warning.

    \b
    Example:
      odradek group reset billing --topic orders --to-earliest
      odradek group reset billing --topic orders:0,1 --shift-by -100 --execute
      odradek group reset billing shipping --all-topics --to-datetime 2026-05-01T06:00:00 --execute
      odradek group reset billing --all-topics --to-current --export > billing.csv
      odradek group reset billing --from-file billing.csv --execute
    """
    from odradek.client.admin import Admin

    if export and as_json:
        raise click.UsageError("--export and --output json exclude each other.")
    options = ResetOptions(**given)  # type: ignore[arg-type]

    async def work() -> list[reset_plans.Move]:
        async with Admin(client_settings(bootstrap, {})) as admin:
            moves = await _Resetter(admin, options).plan()
            if execute:
                await _execute(admin, moves)
            return moves

    moves = run(work())
    if export:
        click.echo(reset_plans.write_csv(moves, with_group=len(dict.fromkeys(options.groups)) > 1), nl=False)
    elif as_json:
        echo_json(reset_plans.moves_value(moves, executed=execute))
    else:
        show([reset_plans.moves_table(moves, executed=execute)])
        if moves and execute:
            click.echo("The offsets were reset.")
    if moves and not execute and not as_json:
        click.echo("Nothing was changed: add --execute to reset these offsets.", err=True)


class _Resetter:
    """Finds the new offsets."""

    def __init__(self, admin: Admin, options: ResetOptions) -> None:
        self._admin = admin
        self._options = options
        self._groups = list(dict.fromkeys(options.groups))
        self._warned: set[str] = set()

    async def plan(self) -> list[reset_plans.Move]:
        """Return the changes of all groups. Raises `NonEmptyGroupError` if one has members."""
        for found in (await self._admin.describe_groups(self._groups)).values():
            _check_inactive(found)
        stored = self._stored()
        moves = []
        progress = _Progress(len(self._groups))
        for group in self._groups:
            progress.step()
            committed = await self._admin.group_offsets(group)
            places = list(stored[group]) if stored is not None else await self._places(committed)
            wanted = await self._targets(group, places, committed, {} if stored is None else stored[group])
            for partition in sorted(places):
                old = committed.get(partition)
                moves.append(reset_plans.Move(group, partition, None if old is None else old.offset, wanted[partition]))
        return moves

    def _stored(self) -> dict[str, dict[TopicPartition, int]] | None:
        if self._options.from_file is None:
            return None
        try:
            text = Path(self._options.from_file).read_text(encoding="utf-8-sig")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"the file {self._options.from_file} cannot be read: {error}") from error
        return reset_plans.read_csv(text, self._groups)

    async def _places(self, committed: Mapping[TopicPartition, object]) -> list[TopicPartition]:
        """Return the partitions to reset."""
        known = set(await self._admin.list_topics(internal=True))
        if self._options.all_topics:
            for topic in sorted({partition.topic for partition in committed} - known):
                self._warn(f"Topic {topic} does not exist; its offsets are left out.")
            return [partition for partition in committed if partition.topic in known]
        if missing := sorted(self._options.scope.keys() - known):
            raise UnknownTopicOrPartitionError(f"there is no topic {missing[0]}")
        found = []
        for topic, described in (await self._admin.describe_topics(self._options.scope)).items():
            numbers = [part.partition for part in described.partitions]
            if unknown := sorted(set(self._options.scope[topic]) - set(numbers)):
                raise UnknownTopicOrPartitionError(f"topic {topic} has no partition {unknown[0]}")
            found += [TopicPartition(topic, number) for number in self._options.scope[topic] or numbers]
        return found

    async def _targets(
        self,
        group: str,
        places: list[TopicPartition],
        committed: Mapping[TopicPartition, OffsetAndMetadata],
        stored: Mapping[TopicPartition, int],
    ) -> dict[TopicPartition, int]:
        """Return the new offset of each partition."""
        options = self._options
        if options.to_earliest:
            return await self._listed(places, "earliest")
        if options.to_latest:
            return await self._listed(places, "latest")
        if options.to_datetime is not None:
            return await self._at_time(places, options.to_datetime)
        if options.by_duration is not None:
            return await self._at_time(places, int(time.time() * 1000) - options.by_duration)
        offsets = {partition: committed[partition].offset for partition in places if partition in committed}
        if options.to_current:
            return {**await self._listed([place for place in places if place not in offsets], "latest"), **offsets}
        if options.to_offset is not None:
            stored = dict.fromkeys(places, options.to_offset)
        elif options.shift_by is not None:
            if missing := sorted(set(places) - offsets.keys()):
                raise ConfigError(
                    f"group {group} has no committed offset for {missing[0]}, so it cannot be shifted: name the "
                    "partitions with --topic TOPIC:PARTITION,…, or use --all-topics"
                )
            stored = {place: offsets[place] + options.shift_by for place in places}
        return await self._in_log(group, stored)

    async def _listed(self, places: list[TopicPartition], spec: int | str) -> dict[TopicPartition, int]:
        if not places:
            return {}
        listed = await self._admin.list_offsets(dict.fromkeys(places, spec))
        return {partition: found.offset for partition, found in listed.items()}

    async def _at_time(self, places: list[TopicPartition], timestamp_ms: int) -> dict[TopicPartition, int]:
        found = await self._listed(places, timestamp_ms)
        later = sorted(partition for partition, offset in found.items() if offset == NO_OFFSET)
        for partition in later:
            self._warn(
                f"Partition {partition} has no record at or after this time: its offset becomes the end of the log."
            )
        return {**found, **await self._listed(later, "latest")}

    async def _in_log(self, group: str, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        starts = await self._listed(list(wanted), "earliest")
        ends = await self._listed(list(wanted), "latest")
        limits = {partition: reset_plans.LogRange(starts[partition], ends[partition]) for partition in wanted}
        clamped = reset_plans.clamp(group, wanted, limits)
        for warning in clamped.warnings:
            self._warn(warning)
        return clamped.offsets

    def _warn(self, text: str) -> None:
        if text not in self._warned:
            self._warned.add(text)
            _warn(text)


def _check_inactive(group: GroupDescription) -> None:
    if group.state not in _INACTIVE:
        raise NonEmptyGroupError(
            f"group {group.group_id} has members (its state is {group.state}), so its offsets cannot be reset"
        )


async def _execute(admin: Admin, moves: list[reset_plans.Move]) -> None:
    """Set the offsets. Raises the first error after all were tried."""
    failure: Exception | None = None
    groups = list(dict.fromkeys(move.group for move in moves))
    progress = _Progress(len(groups))
    for group in groups:
        progress.step()
        offsets = {move.partition: move.new for move in moves if move.group == group}
        try:
            outcomes = await admin.alter_group_offsets(group, offsets)
        except UnknownMemberIdError as error:
            # A member joined after the groups were checked.
            raise NonEmptyGroupError(f"group {group} has members now, so its offsets were not reset") from error
        for partition, outcome in outcomes.items():
            if outcome is not None:
                failure = failure or outcome
                _warn(f"The offset of group {group} for {partition} was not reset: {message_with_hint(outcome)}")
    if failure is not None:
        raise failure


class _Progress:
    """Tells a person at a terminal how many groups are done, if it takes long."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._begun = -1
        self._since = time.monotonic()

    def step(self) -> None:
        """Begin the next group."""
        self._begun += 1
        if time.monotonic() - self._since > _QUIET_SECONDS and sys.stderr.isatty():
            self._since = time.monotonic()
            click.echo(f"{self._begun} of {self._total} groups …", err=True)


def _warn(text: str) -> None:
    click.echo(f"Warning: {text}", err=True)
