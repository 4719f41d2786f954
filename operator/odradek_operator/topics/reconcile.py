"""The reconciliation of topics: reads the state, plans and executes actions, until nothing is left to do.

The embedded cluster and the operator call it, so both make the same decisions. It does not wait until the controller
has acted on a write. The next call reads the result.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from odradek.zk.ownership import MANAGED_TOPICS
from odradek.zk.port import ZkClient
from odradek_operator.topics.topic_actions import Action
from odradek_operator.topics.topic_plan import Plan, Wanted, make_plan
from odradek_operator.topics.zookeeper_reader import read_snapshot
from odradek_operator.topics.zookeeper_state import Snapshot
from odradek_operator.topics.zookeeper_writer import OutdatedError, carry_out

logger = logging.getLogger(__name__)

MAX_ROUNDS: Final = 10
"""Maximum number of attempts in one call. If other clients keep changing the cluster, the next call continues."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The last snapshot and the plan made from it."""

    snapshot: Snapshot
    plan: Plan

    @property
    def settled(self) -> bool:
        """Whether nothing was left to do."""
        return not self.plan.actions


async def reconcile(
    zk: ZkClient,
    wanted: Wanted,
    done: Callable[[Action], None],
    *,
    everything: bool = False,
    plan_only: bool = False,
) -> Outcome:
    """Change the topics in ZooKeeper until they match their resources. Calls `done` after each action.

    `everything`: whether the snapshot contains the details of all topics, for decisions about the whole cluster, or
    only those of topics with resources. `plan_only`: whether nothing is written. Raises `ZkError` if
    ZooKeeper does not answer.
    """
    names = None if everything else [*wanted.topics, *wanted.removed]
    for _ in range(MAX_ROUNDS):
        snapshot = await read_snapshot(zk, names)
        plan = make_plan(wanted, snapshot)
        if plan_only or not plan.actions:
            break
        await _carry_out_all(zk, snapshot, plan, done)
    return Outcome(snapshot=snapshot, plan=plan)


async def _carry_out_all(zk: ZkClient, snapshot: Snapshot, plan: Plan, done: Callable[[Action], None]) -> None:
    version = snapshot.controller_epoch_version
    assert version is not None, "no action is planned before the first controller was elected"
    await zk.ensure_path(MANAGED_TOPICS)
    for action in plan.actions:
        try:
            await carry_out(zk, action, epoch_version=version)
        except OutdatedError as error:
            logger.info("the state in ZooKeeper has changed, planning again: %s", error)
            return
        done(action)
