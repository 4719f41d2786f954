"""Queries the members of a ZooKeeper ensemble for their role, with the four-letter word `mntr`.

The loop of a cluster calls it while members are missing or have to be restarted. The result contains the members that
answer in time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

from odradek_operator.ensemble.four_letter_words import NoAnswerError, ask
from odradek_operator.ensemble.mntr import parse
from odradek_operator.lifecycle.observed_cluster import LEADER, Quorum
from odradek_operator.objects.names import ZOOKEEPER_CLIENT_PORT

TIMEOUT_SECONDS: Final = 3.0


async def ask_members(hosts: Mapping[int, str], *, port: int = ZOOKEEPER_CLIENT_PORT) -> Quorum:
    """Return the roles that members report; those that do not answer or serve are missing."""
    answers = await asyncio.gather(*(_told(host, port) for host in hosts.values()))
    told = dict(zip(hosts, answers, strict=True))
    modes = {member: state for member, one in told.items() if (state := one.get("zk_server_state"))}
    counts = [told[member].get("zk_synced_followers", "") for member, mode in modes.items() if mode == LEADER]
    return Quorum(modes=modes, followers=int(counts[0]) if len(counts) == 1 and counts[0].isdecimal() else None)


async def _told(host: str, port: int) -> dict[str, str]:
    try:
        return parse(await ask(host, port, "mntr", timeout_seconds=TIMEOUT_SECONDS))
    except NoAnswerError:
        return {}  # A member that does not answer is not part of the result.
