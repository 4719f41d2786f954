"""Asks each member of a ZooKeeper ensemble for its part in it, by the four-letter word `mntr`.

Enters: hosts. Leaves: a `Quorum` of those that answer in time. Called by the loop of a cluster while members are away
or are to be restarted.
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
    """What members say of themselves; one that does not answer, or does not serve, is missing."""
    answers = await asyncio.gather(*(_told(host, port) for host in hosts.values()))
    told = dict(zip(hosts, answers, strict=True))
    modes = {member: state for member, one in told.items() if (state := one.get("zk_server_state"))}
    counts = [told[member].get("zk_synced_followers", "") for member, mode in modes.items() if mode == LEADER]
    return Quorum(modes=modes, followers=int(counts[0]) if len(counts) == 1 and counts[0].isdecimal() else None)


async def _told(host: str, port: int) -> dict[str, str]:
    try:
        return parse(await ask(host, port, "mntr", timeout_seconds=TIMEOUT_SECONDS))
    except NoAnswerError:
        return {}  # Being silent is what it says.
