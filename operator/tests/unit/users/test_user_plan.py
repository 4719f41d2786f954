"""Plans for users: rights go first and come last, and what others have set stays."""

from __future__ import annotations

from dataclasses import replace

from odradek.security.acls.model import AclBinding, AclOperation, AclPermission, AclRule, ResourcePattern, ResourceType
from odradek_operator.crds import User
from odradek_operator.crds.user_types import AclEffect, AclResource, UserAcl, UserAuthentication, UserQuotas
from odradek_operator.users.user_plan import RuleChange, StoredUser, UserPlan, plan_removal, plan_user

ORDERS = ResourcePattern(ResourceType.TOPIC, "orders")
MECHANISM = "SCRAM-SHA-512"
READ = UserAcl(resource=AclResource(type="topic", name="orders"), operations=("Read",))
DENY_WRITE = UserAcl(resource=AclResource(type="topic", name="orders"), operations=("Write",), effect=AclEffect.DENY)
ALICE = User(
    name="alice",
    cluster="demo",
    namespace="shop",
    uid="u1",
    authentication=UserAuthentication(type="scram-sha-512"),
    acls=(READ, DENY_WRITE),
    quotas=UserQuotas(producer_byte_rate=10),
)


def rule(permission: AclPermission, operation: AclOperation) -> AclRule:
    return AclRule(ALICE.principal, permission, operation)


ALLOW = rule(AclPermission.ALLOW, AclOperation.READ)
DENY = rule(AclPermission.DENY, AclOperation.WRITE)


def carried_out(plan: UserPlan, stored: StoredUser) -> StoredUser:
    """What ZooKeeper has after a plan."""
    rules = set(stored.rules)
    for change in (*plan.first, *plan.last):
        rules |= {AclBinding(change.resource, each) for each in change.add}
        rules -= {AclBinding(change.resource, each) for each in change.remove}
    settings = {**stored.settings, **plan.settings}
    return StoredUser(
        record=plan.record_after,
        record_version=0,
        settings={key: text for key, text in settings.items() if text is not None},
        rules=frozenset(rules),
    )


def test_a_new_user_is_recorded_then_denied_then_known_then_allowed() -> None:
    plan = plan_user(ALICE, StoredUser(), {MECHANISM: "secret"})
    assert plan.record_before == plan.record_after
    assert plan.first == (RuleChange(resource=ORDERS, add=frozenset({DENY})),)
    assert plan.settings == {"producer_byte_rate": "10", MECHANISM: "secret"}
    assert plan.last == (RuleChange(resource=ORDERS, add=frozenset({ALLOW})),)
    assert plan.summary == "2 access rules, 1 quotas, 1 passwords"
    after = carried_out(plan, StoredUser())
    assert plan_user(ALICE, after, {MECHANISM: "secret"}).is_empty


def test_what_others_have_set_stays() -> None:
    foreign = AclBinding(ORDERS, rule(AclPermission.ALLOW, AclOperation.ALTER))
    stored = StoredUser(settings={"consumer_byte_rate": "5", "producer_byte_rate": "7"}, rules=frozenset({foreign}))
    after = carried_out(plan_user(ALICE, stored, {}), stored)
    assert after.settings == {"consumer_byte_rate": "5", "producer_byte_rate": "10"}
    assert foreign in after.rules
    gone = carried_out(plan_removal(ALICE.principal, after), after)
    assert (gone.record, gone.settings, gone.rules) == (None, {"consumer_byte_rate": "5"}, {foreign})


def test_what_a_resource_no_longer_has_is_removed() -> None:
    before = carried_out(plan_user(ALICE, StoredUser(), {MECHANISM: "secret"}), StoredUser())
    fewer = replace(ALICE, acls=(DENY_WRITE,), quotas=None)
    plan = plan_user(fewer, before, {MECHANISM: "secret"})
    assert plan.first == (RuleChange(resource=ORDERS, remove=frozenset({ALLOW})),)
    assert plan.settings == {"producer_byte_rate": None}
    assert plan.last == ()
    assert plan.record_before is None, "the present record has everything already"
    assert carried_out(plan, before).rules == {AclBinding(ORDERS, DENY)}


def test_a_change_is_recorded_with_what_was_before_until_it_is_complete() -> None:
    before = carried_out(plan_user(ALICE, StoredUser(), {}), StoredUser())
    other = replace(ALICE, acls=(replace(READ, operations=("Describe",)),), quotas=UserQuotas(consumer_byte_rate=1))
    plan = plan_user(other, before, {})
    assert plan.record_before is not None
    assert plan.record_after is not None
    assert before.record is not None
    assert plan.record_before.rules == before.record.rules | plan.record_after.rules
    assert plan.record_before.quotas == {"producer_byte_rate", "consumer_byte_rate"}


def test_the_rights_of_a_deleted_user_go_before_its_restrictions() -> None:
    before = carried_out(plan_user(ALICE, StoredUser(), {MECHANISM: "secret"}), StoredUser())
    plan = plan_removal(ALICE.principal, before)
    assert plan.first == (RuleChange(resource=ORDERS, remove=frozenset({ALLOW})),)
    assert plan.settings == {"producer_byte_rate": None, MECHANISM: None}
    assert plan.last == (RuleChange(resource=ORDERS, remove=frozenset({DENY})),)
    assert plan.record_after is None


def test_what_others_have_removed_comes_back() -> None:
    before = carried_out(plan_user(ALICE, StoredUser(), {}), StoredUser())
    plan = plan_user(ALICE, replace(before, rules=frozenset(), settings={}), {})
    assert not plan.is_empty
    assert carried_out(plan, replace(before, rules=frozenset(), settings={})).rules == before.rules
