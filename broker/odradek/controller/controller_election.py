"""The controller election in ZooKeeper: the ephemeral znode `/controller` and the epoch in `/controller_epoch`.

The winner creates `/controller` and increments the epoch in one transaction, conditional on the version of
`/controller_epoch`. Every later write of the controller checks that version, so a controller that was replaced while
it was paused cannot write. The runtime calls this module.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Final

from odradek.base.errors import OdradekError
from odradek.base.ports import Clock
from odradek.base.types import NO_BROKER, ControllerEpoch
from odradek.zk import layout
from odradek.zk.layout import ControllerRegistration
from odradek.zk.port import BadVersion, Create, NodeExists, NoNode, SetData, ZkClient, ZnodeStat

log = logging.getLogger(__name__)

FIRST_EPOCH: Final = 0
"""Epoch in `/controller_epoch` before the first controller, whose epoch is 1."""


class ControllerMovedError(OdradekError):
    """This broker is no longer the controller: the version of `/controller_epoch` has changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Election:
    """The result of an election: the controller epoch, and the version of `/controller_epoch` that fences writes."""

    epoch: ControllerEpoch
    epoch_version: int


async def current_controller(zk: ZkClient) -> int:
    """Return the broker id of the controller, -1 if there is none."""
    found = await zk.get_or_none(layout.CONTROLLER)
    return NO_BROKER if found is None else ControllerRegistration.decode(found[0]).broker_id


async def become_controller(zk: ZkClient, clock: Clock, broker_id: int) -> Election | None:
    """Try to become the controller. Returns None if another broker is the controller.

    If an earlier reign of this broker has left a `/controller` in the same session, it is deleted first.
    """
    found = await zk.get_or_none(layout.CONTROLLER)
    if found is not None:
        _, stat = found
        if stat.ephemeral_owner != zk.session_id:
            return None
        await _give_up(zk, stat)
    epoch, version = await _read_epoch(zk)
    registration = ControllerRegistration(broker_id=broker_id, timestamp_ms=clock.wall_ms())
    next_epoch = ControllerEpoch(epoch + 1)
    try:
        results = await zk.multi(
            [
                Create(layout.CONTROLLER, registration.encode(), ephemeral=True),
                SetData(layout.CONTROLLER_EPOCH, layout.encode_controller_epoch(next_epoch), version),
            ]
        )
    except (NodeExists, BadVersion):
        log.info("another broker became the controller")
        return None
    raised = results[1]
    assert isinstance(raised, ZnodeStat), "the result of a set is a stat"
    return Election(epoch=next_epoch, epoch_version=raised.version)


async def resign(zk: ZkClient) -> None:
    """Delete `/controller` if it belongs to this session."""
    found = await zk.get_or_none(layout.CONTROLLER)
    if found is not None and found[1].ephemeral_owner == zk.session_id:
        await _give_up(zk, found[1])


async def _give_up(zk: ZkClient, stat: ZnodeStat) -> None:
    try:
        await zk.delete(layout.CONTROLLER, stat.version)
    except (NoNode, BadVersion):
        log.info("%s was already deleted", layout.CONTROLLER)


async def _read_epoch(zk: ZkClient) -> tuple[int, int]:
    while True:
        found = await zk.get_or_none(layout.CONTROLLER_EPOCH)
        if found is not None:
            return layout.decode_controller_epoch(found[0]), found[1].version
        try:
            await zk.create(layout.CONTROLLER_EPOCH, layout.encode_controller_epoch(FIRST_EPOCH))
        except NodeExists:
            log.debug("%s was created by another broker", layout.CONTROLLER_EPOCH)
