"""The changes that the console can make if `allow_changes` is set: topics, their configuration, offsets of groups.

Each function takes the fields of a form. Brokers check the rights of the user.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from odradek.base.errors import ConfigError
from odradek.base.types import TopicPartition
from odradek.client.admin import Admin
from odradek.client.admin_kinds import ConfigOperation
from odradek.client.models import ConfigChange, ConfigResource, NewTopic
from odradek.console.message_query import parse_time_ms
from odradek.console.topic_reads import describe_one

Form = Mapping[str, str]

_MAX_COUNT: Final = 10_000


async def create_topic(admin: Admin, form: Form) -> str:
    """Create a topic and return its name. Empty fields have the defaults of the broker. Raises `OdradekError`."""
    name = form.get("name", "").strip()
    if not name:
        raise ConfigError("The name of the topic is missing")
    configs = tuple(_property(line) for line in form.get("configs", "").splitlines() if line.strip())
    partitions, replicas = _count(form, "partitions"), _count(form, "replicas")
    topic = NewTopic(name=name, partitions=partitions, replication_factor=replicas, configs=configs)
    await admin.create_topics([topic])
    return name


def _count(form: Form, name: str) -> int:
    text = form.get(name, "").strip()
    if not text:
        return -1
    if not text.isascii() or not text.isdigit() or not 0 < int(text[:9]) <= _MAX_COUNT:
        raise ConfigError(f"{name}={text} is not allowed: it must be a number from 1 to {_MAX_COUNT}")
    return int(text)


def _property(line: str) -> tuple[str, str]:
    name, separator, value = line.partition("=")
    if not separator or not name.strip():
        raise ConfigError(f"{line!r} is not allowed: each line must be a property such as retention.ms=86400000")
    return name.strip(), value.strip()


async def delete_topic(admin: Admin, name: str, form: Form) -> None:
    """Delete a topic if the form repeats its name. Raises `OdradekError`."""
    if form.get("confirm", "").strip() != name:
        raise ConfigError(f"The topic was not deleted: enter its name, {name}, to confirm")
    await admin.delete_topics([name])


async def alter_config(admin: Admin, name: str, form: Form) -> None:
    """Set one property of a topic, or remove its value so that the default applies. Raises `OdradekError`."""
    key = form.get("name", "").strip()
    if not key:
        raise ConfigError("The name of the property is missing")
    is_reset = form.get("operation") == "reset"
    change = ConfigChange(
        name=key,
        value=None if is_reset else form.get("value", "").strip(),
        operation=ConfigOperation.DELETE if is_reset else ConfigOperation.SET,
    )
    await admin.incremental_alter_configs({ConfigResource.topic(name): [change]})


async def reset_offsets(admin: Admin, group_id: str, form: Form) -> None:
    """Set the committed offsets of a group without members, in all partitions of a topic or in one.

    `to` is `earliest`, `latest`, `offset` or `time`. Offsets outside the log are moved to its start or end. Raises
    `OdradekError`; then the offsets of other partitions may be set.
    """
    topic = form.get("topic", "").strip()
    if not topic:
        raise ConfigError("The topic is missing: enter the one whose offsets are set")
    places = [TopicPartition(topic, each.partition) for each in (await describe_one(admin, topic)).partitions]
    number = form.get("partition", "").strip()
    if number:
        places = [place for place in places if str(place.partition) == number]
        if not places:
            raise ConfigError(f"Topic {topic} has no partition {number}")
    first = await admin.list_offsets(dict.fromkeys(places, "earliest"))
    last = await admin.list_offsets(dict.fromkeys(places, "latest"))
    wanted = await _targets(admin, places, form)
    offsets = {
        place: min(max(wanted.get(place, last[place].offset), first[place].offset), last[place].offset)
        for place in places
    }
    errors = await admin.alter_group_offsets(group_id, offsets)
    for error in errors.values():
        if error is not None:
            raise error


async def _targets(admin: Admin, places: list[TopicPartition], form: Form) -> dict[TopicPartition, int]:
    """Return the requested offsets. A missing partition means the end of the log."""
    to = form.get("to", "")
    if to == "earliest":
        return dict.fromkeys(places, 0)
    if to == "latest":
        return {}
    if to == "offset":
        text = form.get("offset", "").strip()
        if not text.isascii() or not text.isdigit() or len(text) > 18:
            raise ConfigError(f"offset={text} is not allowed: it must be a number, 0 or higher")
        return dict.fromkeys(places, int(text))
    if to == "time":
        listed = await admin.list_offsets(dict.fromkeys(places, parse_time_ms(form.get("time", "").strip())))
        return {place: found.offset for place, found in listed.items() if found.offset >= 0}
    raise ConfigError(f"to={to} is not allowed: it must be earliest, latest, offset or time")
