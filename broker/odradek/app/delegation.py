"""The delegation tokens of a broker: from the settings and the tokens in ZooKeeper to logins and handlers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from odradek.base.config import BrokerConfig
from odradek.base.ports import Clock, DiskThreadsMaker
from odradek.protocol.apis import ApiKey
from odradek.security.sasl.credentials import ScramMechanism, TokenCredential
from odradek.security.tokens import TokenKey, TokenLimits
from odradek.server.dispatch import Handler
from odradek.server.security.token_handlers import TokenHandlers
from odradek.zk.delegation_tokens import DelegationTokens
from odradek.zk.port import ZkClient


class Delegation:
    """Follows the tokens in ZooKeeper if `delegation.token.secret.key` is set. Otherwise there are none."""

    def __init__(self, config: BrokerConfig, zk: ZkClient, clock: Clock, disk_threads: DiskThreadsMaker) -> None:
        """The client of ZooKeeper may be unconnected. A thread derives the keys of tokens."""
        # As in Kafka, the old name counts only if the new one is missing. An empty secret disables tokens.
        secret = config.delegation_token_secret_key
        secret = config.delegation_token_master_key if secret is None else secret
        self._clock: Final = clock
        self._interval_ms: Final = config.delegation_token_expiry_check_interval_ms
        self._limits: Final = TokenLimits(
            config.delegation_token_max_lifetime_ms, config.delegation_token_expiry_time_ms
        )
        self._threads: Final = disk_threads("keys of delegation tokens", 1) if secret else None
        self._tokens: Final = (
            DelegationTokens(zk, clock, key=TokenKey(secret), run_blocking=self._threads)
            if secret and self._threads
            else None
        )

    async def start(self) -> None:
        """Read the tokens. Before, nobody can log in with one. Raises `ZkError`."""
        if self._tokens is not None:
            await self._tokens.start()

    async def close(self) -> None:
        """Stop following the tokens. Idempotent."""
        if self._tokens is not None and self._threads is not None:
            await self._tokens.close()
            self._threads.close()

    def handlers(self) -> Mapping[ApiKey, Handler]:
        """The handlers that show and change tokens."""
        return TokenHandlers(self._tokens, self._limits, self._clock).handlers()

    def credential(self, mechanism: ScramMechanism, token_id: str) -> TokenCredential | None:
        """Return with what a client that has a token logs in, from memory; None if there is no such token."""
        return None if self._tokens is None else self._tokens.credential(mechanism, token_id)

    async def remove_expired(self, is_controller: Callable[[], bool]) -> None:
        """Remove the tokens that have expired, at intervals, while this broker is the controller. Runs until it is
        cancelled, or returns at once without tokens."""
        while self._tokens is not None:
            await self._clock.sleep_ms(self._interval_ms)
            if is_controller():
                await self._tokens.remove_expired()
