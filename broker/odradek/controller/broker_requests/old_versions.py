"""The controller's requests in the forms that they had before partitions were grouped by topic.

A message as `requests` makes it enters; what is to be sent in a version leaves: mostly the message itself. Brokers are
told in old versions while `inter.broker.protocol.version` names an old release. Pure; called by `dispatch`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from odradek.protocol.apis import ApiKey
from odradek.protocol.codec import Message

_GROUPED_SINCE: Final[Mapping[ApiKey, int]] = {
    ApiKey.LEADER_AND_ISR: 2,
    ApiKey.UPDATE_METADATA: 5,
    ApiKey.STOP_REPLICA: 3,
}
_GROUPED_STOPS_SINCE: Final = 1
_LATER: Final = frozenset({"adding_replicas", "removing_replicas", "leader_recovery_state"})
"""What no ungrouped form has."""


def is_grouped(api_key: ApiKey, version: int) -> bool:
    """Whether the version has the form that `requests` makes. Such versions also carry broker epochs (KIP-380)."""
    return version >= _GROUPED_SINCE[api_key]


def forms(api_key: ApiKey, version: int, message: Message) -> list[Message]:
    """The messages to send one after the other instead of this one.

    Only StopReplica may become two: one version says for all its partitions whether they are to be deleted. Those to
    be deleted come last, so that the last answer is the one that counts.
    """
    if is_grouped(api_key, version):
        return [message]
    if api_key is ApiKey.STOP_REPLICA:
        wanted = [(delete, list(_partitions(message, delete))) for delete in (False, True)]
        form = _by_topic if version >= _GROUPED_STOPS_SINCE else _one_by_one
        return [{**message, "delete_partitions": delete, **form(parts)} for delete, parts in wanted if parts]
    states = [
        {"topic_name": topic["topic_name"], **{name: value for name, value in state.items() if name not in _LATER}}
        for topic in _topics(message)
        for state in topic["partition_states"]
    ]
    return [{**message, "ungrouped_partition_states": states}]


_Partitions = list[tuple[str, int]]


def _topics(message: Message) -> Iterator[Mapping[str, Any]]:
    topics: Any = message["topic_states"]
    yield from topics


def _partitions(message: Message, delete: bool) -> Iterator[tuple[str, int]]:
    for topic in _topics(message):
        for state in topic["partition_states"]:
            if state["delete_partition"] is delete:
                yield topic["topic_name"], state["partition_index"]


def _by_topic(partitions: _Partitions) -> dict[str, object]:
    topics: dict[str, list[int]] = {}
    for topic, number in partitions:
        topics.setdefault(topic, []).append(number)
    return {"topics": [{"name": topic, "partition_indexes": numbers} for topic, numbers in topics.items()]}


def _one_by_one(partitions: _Partitions) -> dict[str, object]:
    return {"ungrouped_partitions": [{"topic_name": topic, "partition_index": number} for topic, number in partitions]}
