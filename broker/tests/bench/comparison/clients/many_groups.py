"""Creates many groups of a few members each, and stores them in a file for `heartbeats`.

Options: address of the broker, topic, number of groups, members of each, groups that join at the same time, file.
"""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path

from comparison.clients.busy import opened
from comparison.clients.calling import answer, options
from comparison.clients.group_members import Member, equal_shares, wait_for_coordinator
from comparison.wire import Address
from odradek.base.types import TopicPartition


def main() -> None:
    """Create all groups, and return no figures."""
    wanted = options()
    address = Address(wanted["host"], wanted["port"])
    joined: list[tuple[str, str, int]] = []
    with ExitStack() as closing:
        size = wanted["members"]
        connections = [closing.enter_context(opened(address)) for _ in range(wanted["at_once"] * size)]
        wait_for_coordinator(connections[0], "group-0")
        for first in range(0, wanted["groups"], wanted["at_once"]):
            numbers = range(first, min(first + wanted["at_once"], wanted["groups"]))
            members = [
                Member(f"group-{number}", connections[(number - first) * size + place])
                for number in numbers
                for place in range(size)
            ]
            for member in members:
                member.send_join([wanted["topic"]])
            for member in members:
                member.receive_join()
            partitions = [TopicPartition(wanted["topic"], number) for number in range(size)]
            for member in members:
                member.send_sync(equal_shares(member.members, partitions) if member.members else {})
            for member in members:
                member.receive_sync()
            joined += [(member.group, member.member_id, member.generation) for member in members]
    Path(wanted["file"]).write_text(json.dumps(joined), encoding="utf-8")
    answer({})


if __name__ == "__main__":
    main()
