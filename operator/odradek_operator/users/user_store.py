"""Reads users from ZooKeeper and carries out plans. Every write depends on what was read, or keeps what others write.

Access rules and settings are changed by the same functions as those of the brokers, so the znodes and notifications
are those of Apache Kafka.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from typing import Final

from odradek.base.errors import OdradekError
from odradek.security.acls.model import AclBinding
from odradek.security.acls.nodes import RULE_PATHS, decode_rules, resource_path
from odradek.security.principals import USER, Principal
from odradek.security.quotas.quota_model import QuotaEntity, entity_path
from odradek.zk import layout
from odradek.zk.acls import change_rules
from odradek.zk.entity_configs import change_entity_config
from odradek.zk.ownership import MANAGED_USERS, ManagedUser, managed_user_path
from odradek.zk.port import BadVersion, NodeExists, NoNode, ZkClient
from odradek.znode import LayoutError
from odradek_operator.crds import User
from odradek_operator.security.material import Files
from odradek_operator.security.user_material import user_credentials
from odradek_operator.topics.zookeeper_writer import OutdatedError
from odradek_operator.users.user_plan import RuleChange, StoredUser, UserPlan, plan_user, wanted_rules

logger = logging.getLogger(__name__)


async def read_records(zk: ZkClient) -> list[ManagedUser]:
    """Return the records of all users. One that cannot be read is logged and left out. Raises `ZkError`."""
    names = await zk.children_or_none(MANAGED_USERS) or []
    found = await zk.get_many([f"{MANAGED_USERS}/{name}" for name in names])
    records = []
    for path, node in found.items():
        try:
            records += [] if node is None else [ManagedUser.decode(path, node[0])]
        except LayoutError as error:
            logger.error("a record of a user is ignored: repair or delete the znode: %s", error)
    return records


async def read_user(zk: ZkClient, principal: Principal, wanted: Iterable[AclBinding]) -> StoredUser:
    """Return what ZooKeeper has about a user. `wanted`: the rules of the resource.

    Raises `LayoutError` if a znode cannot be read or can have no such name, and `ZkError`.
    """
    path = managed_user_path(principal.name)
    node = await zk.get_or_none(path)
    record = None if node is None else ManagedUser.decode(path, node[0])
    settings_path = f"{layout.CONFIG}/{_settings_path(principal)}"
    settings = await zk.get_or_none(settings_path)
    owned = frozenset() if record is None else record.rules
    patterns = {resource_path(one.resource): one.resource for one in (*wanted, *owned)}
    rules: set[AclBinding] = set()
    for rules_path, found in (await zk.get_many(list(patterns))).items():
        if found is not None:
            of_all = decode_rules(rules_path, found[0])
            rules |= {AclBinding(patterns[rules_path], rule) for rule in of_all if rule.principal == principal}
    return StoredUser(
        record=record,
        record_version=None if node is None else node[1].version,
        settings={} if settings is None else layout.decode_config(settings_path, settings[0]),
        rules=frozenset(rules),
    )


class ForeignUserError(OdradekError):
    """The user belongs to a resource of another cluster in the same ZooKeeper."""

    reason: Final = "ForeignUser"
    """One word, for a condition."""


async def settle_user(zk: ZkClient, user: User, files: Files) -> UserPlan:
    """Make credentials, access rules and quotas of a user as its resource specifies. Returns what was changed.

    `files`: what the user logs in with, as `user_files` returns it. Raises `ForeignUserError`, and what `read_user`
    and `carry_out_user` raise.
    """
    stored = await read_user(zk, user.principal, wanted_rules(user))
    if stored.record is not None and stored.record.cluster != f"{user.namespace}/{user.cluster}":
        raise ForeignUserError(
            f"{user.principal} belongs to a User of Cluster {stored.record.cluster} in the same ZooKeeper. If that "
            f"Cluster does not exist any more, delete {stored.record.path}."
        )
    await asyncio.sleep(0)  # The next line takes milliseconds: others have their turn between two users.
    plan = plan_user(user, stored, user_credentials(user, files, stored.settings))
    if not plan.is_empty:
        await carry_out_user(zk, plan)
    return plan


async def carry_out_user(zk: ZkClient, plan: UserPlan) -> None:
    """Change a user. Raises `OutdatedError` if the record has changed since it was read, `LayoutError` and `ZkError`.

    After an error, a part of the plan may have been carried out: read and plan again.
    """
    version = plan.record_version
    if plan.record_before is not None:
        await zk.ensure_path(MANAGED_USERS)
        version = await _write(zk, plan.record_before, version)
    if plan.first or plan.last:
        for path in RULE_PATHS:
            await zk.ensure_path(path)
    await _change_rules(zk, plan.first)
    if plan.settings:
        changes = plan.settings

        def change(before: Mapping[str, str]) -> Mapping[str, str]:
            merged: dict[str, str | None] = {**before, **changes}
            return {key: text for key, text in merged.items() if text is not None}

        await zk.ensure_path(layout.CONFIG_CHANGES)
        await change_entity_config(zk, _settings_path(plan.principal), change)
    await _change_rules(zk, plan.last)
    if plan.record_after is None or plan.record_after != plan.record_before:
        await _finish(zk, plan, version)


def _settings_path(principal: Principal) -> str:
    return entity_path(QuotaEntity(user=principal.name))


def principal_of(record: ManagedUser) -> Principal:
    """Return the user of a record."""
    return Principal(USER, record.user)


async def _change_rules(zk: ZkClient, changes: Iterable[RuleChange]) -> None:
    for change in changes:
        await change_rules(zk, change.resource, add=change.add, remove=change.remove)


async def _finish(zk: ZkClient, plan: UserPlan, version: int | None) -> None:
    """Write the record in the end, or delete it."""
    if plan.record_after is not None:
        if plan.record_changes:
            await _write(zk, plan.record_after, version)
        return
    try:
        await zk.delete(managed_user_path(plan.principal.name), -1 if version is None else version)
    except (BadVersion, NoNode) as error:
        raise OutdatedError(f"the record of {plan.principal}: {error}") from error


async def _write(zk: ZkClient, record: ManagedUser, version: int | None) -> int:
    """Write a record over the version that was read. Returns its new version."""
    try:
        if version is None:
            await zk.create(record.path, record.encode())
            return 0
        return (await zk.set(record.path, record.encode(), version)).version
    except (BadVersion, NodeExists, NoNode) as error:
        raise OutdatedError(f"the record of {record.user}: {error}") from error
