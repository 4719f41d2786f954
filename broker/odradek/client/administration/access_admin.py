"""Access rules, quotas and users for the admin client. `Admin` inherits these methods."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping

from odradek.client.administration.access_requests import (
    ScramPassword,
    acl_binding,
    acl_filter_fields,
    binding_fields,
    mechanism_name,
    mechanism_number,
    pattern_types_since,
    quota_components,
    quotas_of,
    upsertion_fields,
)
from odradek.client.administration.admin_parts import AdminPart, check_answer
from odradek.protocol.codec import Message
from odradek.protocol.messages.acls import CreateAclsResponse, DeleteAclsResponse, DescribeAclsResponse
from odradek.protocol.messages.quotas import AlterClientQuotasResponse, DescribeClientQuotasResponse
from odradek.protocol.messages.scram import AlterUserScramCredentialsResponse, DescribeUserScramCredentialsResponse
from odradek.security.acls.model import AclBinding, AclFilter
from odradek.security.quotas.quota_filters import QuotaFilter, entity_parts
from odradek.security.quotas.quota_model import QuotaEntity, QuotaKind


class AccessAdmin(AdminPart):
    """Describes and changes access rules, quotas and users."""

    # Access rules

    async def describe_acls(self, selection: AclFilter | None = None) -> list[AclBinding]:
        """Return the access rules that a filter selects, by default all. Raises `SecurityDisabledError` if the brokers
        have no authorizer."""
        wanted = selection or AclFilter()
        response = await self._ask_any(
            DescribeAclsResponse, acl_filter_fields(wanted), at_least=pattern_types_since(wanted.pattern)
        )
        check_answer(response.error_code, response.error_message, "the access rules cannot be described")
        return [acl_binding(resource, rule) for resource in response.resources for rule in resource.acls]

    async def create_acls(self, bindings: Iterable[AclBinding]) -> None:
        """Create access rules. Those that exist already stay. Raises the first error after all were tried."""
        rules = list(bindings)
        message: Message = {"creations": [binding_fields(rule) for rule in rules]}
        at_least = max((pattern_types_since(rule.resource.pattern) for rule in rules), default=0)
        response = await self._ask_any(CreateAclsResponse, message, at_least=at_least)
        for rule, result in zip(rules, response.results, strict=True):
            check_answer(result.error_code, result.error_message, f"the rule for {rule.rule.principal} was not created")

    async def delete_acls(self, selections: Iterable[AclFilter]) -> list[AclBinding]:
        """Delete the access rules that the filters select, and return them. Raises the first error after all were
        tried."""
        filters = list(selections)
        message: Message = {"filters": [acl_filter_fields(each) for each in filters]}
        at_least = max((pattern_types_since(each.pattern) for each in filters), default=0)
        response = await self._ask_any(DeleteAclsResponse, message, at_least=at_least)
        deleted = []
        for result in response.filter_results:
            check_answer(result.error_code, result.error_message, "access rules were not deleted")
            for rule in result.matching_acls:
                check_answer(rule.error_code, rule.error_message, f"a rule for {rule.principal} was not deleted")
                deleted.append(acl_binding(rule, rule))
        return deleted

    # Quotas

    async def describe_client_quotas(
        self, selection: QuotaFilter | None = None
    ) -> dict[QuotaEntity, dict[QuotaKind, float]]:
        """Return the quotas of the entities that a filter selects, by default of all (KIP-546)."""
        wanted = selection or QuotaFilter()
        message: Message = {"components": quota_components(wanted), "strict": wanted.is_strict}
        response = await self._ask_any(DescribeClientQuotasResponse, message)
        check_answer(response.error_code, response.error_message, "the quotas cannot be described")
        return quotas_of(response)

    async def alter_client_quotas(
        self, changes: Mapping[QuotaEntity, Mapping[QuotaKind, float | None]], *, validate_only: bool = False
    ) -> None:
        """Set quotas of entities, and remove those that are None. Others stay.

        With `validate_only`, brokers only check the values. Raises the first error after all were tried.
        """
        entries = [
            {
                "entity": [{"entity_type": kind, "entity_name": name} for kind, name in entity_parts(entity)],
                "ops": [
                    {"key": kind.value, "value": value or 0.0, "remove": value is None}
                    for kind, value in values.items()
                ],
            }
            for entity, values in changes.items()
        ]
        message: Message = {"entries": entries, "validate_only": validate_only}
        response = await self._ask_any(AlterClientQuotasResponse, message)
        for entry in response.entries:
            check_answer(entry.error_code, entry.error_message, "a quota was not changed")

    # Users

    async def describe_user_scram_credentials(self, users: Iterable[str] | None = None) -> dict[str, dict[str, int]]:
        """Return the iterations by mechanism of users, by default of all (KIP-554).

        Raises `ResourceNotFoundError` if one of the named users has no credentials.
        """
        names = None if users is None else [{"name": user} for user in users]
        response = await self._ask_any(DescribeUserScramCredentialsResponse, {"users": names})
        check_answer(response.error_code, response.error_message, "the credentials cannot be described")
        found = {}
        for result in response.results:
            check_answer(result.error_code, result.error_message, f"user {result.user} cannot be described")
            found[result.user] = {mechanism_name(info.mechanism): info.iterations for info in result.credential_infos}
        return found

    async def alter_user_scram_credentials(
        self, *, passwords: Iterable[ScramPassword] = (), deletions: Iterable[tuple[str, str]] = ()
    ) -> None:
        """Set passwords of users, and delete credentials: pairs of user and mechanism, such as `SCRAM-SHA-512`.

        Brokers get a salted hash, not the password. All changes of a user are made or none. Raises
        `UnacceptableCredentialError`, `ResourceNotFoundError` for a credential to be deleted that does not exist, and
        `ConfigError` for a password or mechanism that is not allowed.
        """
        upsertions = [await asyncio.to_thread(upsertion_fields, password) for password in passwords]
        removed = [{"name": user, "mechanism": mechanism_number(mechanism)} for user, mechanism in deletions]
        message: Message = {"upsertions": upsertions, "deletions": removed}

        async def attempt() -> AlterUserScramCredentialsResponse:
            return await self._cluster.ask_controller(AlterUserScramCredentialsResponse, message)

        response = await self._retrying(attempt, "changing credentials")
        for result in response.results:
            check_answer(result.error_code, result.error_message, f"user {result.user} was not changed")
