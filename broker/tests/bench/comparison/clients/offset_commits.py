"""Commits the offsets of many groups, one for each partition of a topic.

Options: address of the broker, topic, partitions, number of groups.
"""

from __future__ import annotations

from typing import Final

from comparison.clients.calling import answer, options
from comparison.clients.group_members import GroupError, wait_for_coordinator
from comparison.wire import Address, Connection
from odradek.protocol.apis import ApiKey

_COMMIT_VERSION: Final = 6
_METADATA: Final = ""


def main() -> None:
    """Commit all offsets, and return no figures."""
    wanted = options()
    rows = [
        {
            "partition_index": number,
            "committed_offset": 1_000_000 + number,
            "committed_leader_epoch": 0,
            "committed_metadata": _METADATA,
        }
        for number in range(wanted["partitions"])
    ]
    with Connection(Address(wanted["host"], wanted["port"])) as connection:
        wait_for_coordinator(connection, "group-0")
        for number in range(wanted["groups"]):
            message = {
                "group_id": f"group-{number}",
                "generation_id_or_member_epoch": -1,
                "member_id": "",
                "topics": [{"name": wanted["topic"], "partitions": rows}],
            }
            response = connection.ask(ApiKey.OFFSET_COMMIT, _COMMIT_VERSION, message)
            codes = {partition.error_code for topic in response.topics for partition in topic.partitions}
            if codes != {0}:
                raise GroupError(f"the commit of group-{number} got the errors {codes}")
    answer({})


if __name__ == "__main__":
    main()
