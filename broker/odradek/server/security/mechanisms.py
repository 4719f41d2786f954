"""Creates the SASL mechanisms of a listener from its settings.

PLAIN takes its users from the listener's JAAS entry, SCRAM users and delegation tokens from ZooKeeper (`zk/users`,
`zk/delegation_tokens`), and OAUTHBEARER verifies tokens with a key set that is loaded again in the background.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

from odradek.base.errors import ConfigError
from odradek.base.ports import Clock, RunBlocking
from odradek.security.sasl import plain, scram
from odradek.security.sasl.credentials import SCRAM_MECHANISMS, ScramCredential, ScramMechanism, TokenCredential
from odradek.security.sasl.http_client import HttpClient, issuer_context
from odradek.security.sasl.jaas import JaasEntry, parse_jaas
from odradek.security.sasl.mechanism import MECHANISMS, OAUTHBEARER, PLAIN, ServerExchange
from odradek.security.sasl.oauthbearer import LOGIN_MODULE as BEARER_MODULE
from odradek.security.sasl.oauthbearer import OAuthBearerServer
from odradek.server.security.listener_properties import ListenerProperties
from odradek.server.security.login import Mechanism

ENABLED: Final = "sasl.enabled.mechanisms"
JAAS: Final = "sasl.jaas.config"
MAX_REAUTH: Final = "connections.max.reauth.ms"

FindCredential = Callable[[ScramMechanism, str], ScramCredential | None]
"""Gives the credential of a user for a mechanism, from memory."""

FindToken = Callable[[ScramMechanism, str], TokenCredential | None]
"""Gives the credential of a delegation token that has not expired, by its id, for a mechanism, from memory."""


@dataclass(frozen=True, slots=True)
class Mechanisms:
    """The enabled mechanisms of a listener, in the order of the setting, and what keeps their keys fresh."""

    by_name: Mapping[str, Mechanism]
    background: Callable[[Clock, RunBlocking], Awaitable[None]] | None = None
    """Runs as long as the listener; None if there is nothing to do."""


def mechanisms_of(
    listener: str, properties: ListenerProperties, find_credential: FindCredential, find_token: FindToken
) -> Mechanisms:
    """Return the mechanisms of a listener. Raises `ConfigError`."""
    names = properties.value(ENABLED)
    assert isinstance(names, tuple), "a list"
    if not names:
        raise ConfigError(
            f"listener {listener} authenticates with SASL: {properties.own_name(ENABLED)} must have one or more of "
            f"{', '.join(MECHANISMS)}"
        )
    decoys = scram.Decoys()
    made, background = {}, None
    for name in names:
        if name in SCRAM_MECHANISMS:
            new_exchange = _scram(SCRAM_MECHANISMS[name], properties, find_credential, find_token, decoys)
        elif name == PLAIN:
            new_exchange = _plain(properties)
        elif name == OAUTHBEARER:
            new_exchange, background = _bearer(properties)
        else:
            raise ConfigError(
                f"{properties.name(ENABLED)} has {name}, which is not supported: it can have {', '.join(MECHANISMS)}"
            )
        made[name] = Mechanism(new_exchange, properties.number(MAX_REAUTH, name))
    return Mechanisms(made, background)


def _jaas(properties: ListenerProperties, mechanism: str, module: str) -> JaasEntry | None:
    """Return the JAAS entry of a mechanism; None without one. Raises `ConfigError`."""
    setting = properties.own_name(JAAS, mechanism)
    text = properties.text(setting)
    if text is None:
        return None
    entry = parse_jaas(setting, text)
    entry.require(setting, module)
    return entry


def _plain(properties: ListenerProperties) -> Callable[[], ServerExchange]:
    setting = properties.own_name(JAAS, PLAIN)
    entry = _jaas(properties, PLAIN, plain.LOGIN_MODULE)
    if entry is None:
        raise ConfigError(
            f"{setting} is missing: PLAIN needs the passwords of users, for example {plain.LOGIN_MODULE} required "
            'user_alice="...";'
        )
    if not any(name.startswith(plain.USER_PREFIX) for name in entry.options):
        raise ConfigError(f'{setting} has no user: add options such as user_alice="..."')
    return partial(plain.PlainServer, plain.PlainUsers(entry.options).verify)


def _scram(
    mechanism: ScramMechanism,
    properties: ListenerProperties,
    find_credential: FindCredential,
    find_token: FindToken,
    decoys: scram.Decoys,
) -> Callable[[], ServerExchange]:
    _jaas(properties, mechanism.name, scram.LOGIN_MODULE)
    return partial(
        scram.ScramServer,
        mechanism,
        find_user=partial(find_credential, mechanism),
        find_token=partial(find_token, mechanism),
        decoys=decoys,
    )


def _bearer(
    properties: ListenerProperties,
) -> tuple[Callable[[], ServerExchange], Callable[[Clock, RunBlocking], Awaitable[None]]]:
    # Only listeners with OAUTHBEARER need `jwt` and `cryptography`, which take 9 MB and 20 ms of CPU time at the start.
    from odradek.security.sasl.bearer_tokens import BearerSettings, TokenVerifier, verification_keys

    entry = _jaas(properties, OAUTHBEARER, BEARER_MODULE)
    settings = BearerSettings.from_properties(properties.merged(OAUTHBEARER))
    context = None if entry is None else issuer_context(entry.options)
    keys = verification_keys(settings, HttpClient(context=context))
    return partial(OAuthBearerServer, TokenVerifier(settings, keys)), keys.keep_fresh
