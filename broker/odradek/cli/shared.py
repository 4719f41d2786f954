"""Common options, event loop and error reporting of the subcommands.

An `OdradekError` becomes one message on standard error, with a hint if there is one, and exit code 1. The client
library is not imported before a command runs.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click
from click.core import ParameterSource

from odradek.base.errors import (
    AuthenticationError,
    DelegationTokenAuthDisabledError,
    DelegationTokenNotFoundError,
    DelegationTokenRequestNotAllowedError,
    GroupIdNotFoundError,
    GroupSubscribedToTopicError,
    NetworkError,
    NonEmptyGroupError,
    OdradekError,
    RequestTimedOutError,
    TopicAlreadyExistsError,
    TransactionalIdNotFoundError,
    UnknownTopicOrPartitionError,
)
from odradek.cli.profiles.profile_names import complete_profiles
from odradek.cli.profiles.profile_store import PROFILE_VARIABLE, Profiles, is_private, profiles_path, read_profiles
from odradek.client.config_files import CONFIG_VARIABLE, read_config_file

if TYPE_CHECKING:
    from odradek.client.settings import ClientSettings

_T = TypeVar("_T")
_F = TypeVar("_F", bound=Callable[..., Any])

DEFAULT_BOOTSTRAP: Final = "127.0.0.1:9092"
BOOTSTRAP_VARIABLE: Final = "ODRADEK_BOOTSTRAP_SERVER"
API_TIMEOUT_MS: Final = 20_000
"""Shorter than the client library's default of 60 s, because a person waits at the terminal."""

_CONFIG: Final = "odradek.command_config"
"""Key of the file's properties in `click.Context.meta`."""
_OUTPUT: Final = "odradek.output"
"""Key of the output format in `click.Context.meta`."""
_PROFILE: Final = "odradek.profile"
"""Key of the given profile in `click.Context.meta`: its properties, or None if none was given."""

_HINTS: Final[tuple[tuple[type[OdradekError], str], ...]] = (
    (
        AuthenticationError,
        f"Check the properties of --profile, or in the file of --command-config or {CONFIG_VARIABLE}.",
    ),
    (NetworkError, f"Check that a broker listens there; see --bootstrap-server and {BOOTSTRAP_VARIABLE}."),
    (RequestTimedOutError, f"Check that a broker listens there; see --bootstrap-server and {BOOTSTRAP_VARIABLE}."),
    (UnknownTopicOrPartitionError, "`odradek topic list` shows the topics, `odradek topic create` creates one."),
    (TopicAlreadyExistsError, "`odradek topic describe` shows it."),
    (DelegationTokenAuthDisabledError, "Set delegation.token.secret.key on all brokers."),
    (DelegationTokenRequestNotAllowedError, "Log in with a user, on a listener with SASL or client certificates."),
    (DelegationTokenNotFoundError, "`odradek token list` shows the tokens."),
    (GroupIdNotFoundError, "`odradek group list` shows the groups."),
    (
        NonEmptyGroupError,
        "Stop its consumers, and wait until `odradek group describe GROUP --state` shows Empty: after a crash of a "
        "consumer, up to its session.timeout.ms.",
    ),
    (GroupSubscribedToTopicError, "Stop the consumers; `odradek group describe GROUP --members` shows them."),
    (TransactionalIdNotFoundError, "`odradek transaction list` shows the transactional ids."),
)


def connection_options(command: _F) -> _F:
    """Add `--bootstrap-server`, `--command-config` and `--profile`. `client_settings` uses the file and the profile."""
    command = click.option(
        "--profile",
        envvar=PROFILE_VARIABLE,
        show_envvar=True,
        metavar="NAME",
        expose_value=False,
        callback=_read_profile,
        shell_complete=complete_profiles,
        help="Profile with client properties, which other options precede; see `odradek profile`.",
    )(command)
    command = click.option(
        "--command-config",
        envvar=CONFIG_VARIABLE,
        show_envvar=True,
        metavar="FILE|NAME",
        expose_value=False,
        callback=_read_config,
        help="File of client properties, such as security.protocol and sasl.jaas.config; prod means "
        "~/.config/odradek/prod.properties.",
    )(command)
    return click.option(
        "-b",
        "--bootstrap-server",
        "bootstrap",
        default=DEFAULT_BOOTSTRAP,
        envvar=BOOTSTRAP_VARIABLE,
        show_default=True,
        show_envvar=True,
        metavar="HOST:PORT,…",
        help="Brokers to connect to first. One is enough if it is running.",
    )(command)


def _read_config(context: click.Context, _parameter: click.Parameter, path: str | None) -> None:
    """Keep the properties of the file in the context of the command."""
    if path is not None:
        with reporting_errors():
            context.meta[_CONFIG] = read_config_file(path, option="--command-config")


def _read_profile(context: click.Context, _parameter: click.Parameter, name: str | None) -> None:
    """Keep the properties of the profile in the context of the command."""
    context.meta[_PROFILE] = None
    if name is not None:
        with reporting_errors():
            context.meta[_PROFILE] = load_profiles().get(name)


def load_profiles() -> Profiles:
    """Return the profiles. Prints a warning if other users can read the file. Raises `ProfileError`."""
    path = profiles_path()
    if not is_private(path):
        click.echo(f"Warning: other users can read {path}, which may have passwords: run chmod 600 on it.", err=True)
    return read_profiles(path)


def output_option(command: _F) -> _F:
    """Add `--output text|json|yaml`. The parameter `as_json` is true for JSON and YAML; `echo_json` prints either."""
    return click.option(
        "-o",
        "--output",
        "as_json",
        type=click.Choice(["text", "json", "yaml"]),
        default="text",
        show_default=True,
        callback=_read_output,
        help="Output format: text for people, JSON or YAML for programs.",
    )(command)


def _read_output(context: click.Context, _parameter: click.Parameter, value: str) -> bool:
    """Keep the format in the context of the command."""
    context.meta[_OUTPUT] = value
    return value != "text"


def property_option(command: _F) -> _F:
    """Add `-X key=value`, a client property; the parameter is `properties`."""
    return click.option(
        "-X",
        "--property",
        "properties",
        multiple=True,
        metavar="KEY=VALUE",
        callback=lambda _context, _parameter, values: pairs(values),
        help="Client property, such as compression.type=zstd; repeatable.",
    )(command)


def pairs(values: Iterable[str]) -> dict[str, str]:
    """Return `KEY=VALUE` arguments as a mapping. Raises `click.BadParameter` if there is no `=`."""
    found = {}
    for value in values:
        key, separator, text = value.partition("=")
        if not separator or not key.strip():
            raise click.BadParameter(f"{value!r} is not of the form KEY=VALUE.")
        found[key.strip()] = text
    return found


def client_settings(bootstrap: str, properties: Mapping[str, str], **more: object) -> ClientSettings:
    """Return the settings of a command.

    Each of these precedes the one before it: `more`, the defaults of the command; the profile; the file of
    `--command-config`; `properties`. The current profile counts only without such a file. `bootstrap.servers` of the
    profile or the file count only if the option is not given. The environment variable of the option precedes them,
    unless the profile is given as an option.

    Prints a warning for each unknown property; raises `ConfigError` for an invalid value, and `ProfileError`.
    """
    from odradek.client.settings import ClientSettings

    given = {"default.api.timeout.ms": str(API_TIMEOUT_MS), **{key: str(value) for key, value in more.items()}}
    connection = connection_properties(bootstrap)
    addresses = {"bootstrap.servers": connection["bootstrap.servers"]}
    settings, warnings = ClientSettings.parse({**given, **connection, **properties, **addresses})
    for warning in warnings:
        click.echo(f"Warning: {warning}", err=True)
    return settings


def connection_properties(bootstrap: str) -> dict[str, str]:
    """Return the properties of the profile and of the file of `--command-config`.

    `bootstrap.servers` is that of the option if it is given, else that of the profile or the file.
    """
    context = click.get_current_context(silent=True)
    stored = {} if context is None else _stored_properties(context)
    if context is not None and "bootstrap.servers" in stored and not _precedes_stored(context):
        bootstrap = stored["bootstrap.servers"]
    return {**stored, "bootstrap.servers": bootstrap}


def _stored_properties(context: click.Context) -> dict[str, str]:
    """Return the properties of the profile and of the file of a command with `connection_options`."""
    if _PROFILE not in context.meta:
        return {}
    file: Mapping[str, str] | None = context.meta.get(_CONFIG)
    profile: Mapping[str, str] | None = context.meta[_PROFILE]
    if profile is None and file is None:
        profiles = load_profiles()
        profile = None if profiles.current is None else profiles.get(profiles.current)
    return {**(profile or {}), **(file or {})}


def _precedes_stored(context: click.Context) -> bool:
    """Whether the servers of the option or its variable precede those of the profile and the file."""
    source = context.get_parameter_source("bootstrap")
    if source is ParameterSource.ENVIRONMENT:
        return context.get_parameter_source("profile") is not ParameterSource.COMMANDLINE
    return source is not ParameterSource.DEFAULT


@contextmanager
def reporting_errors() -> Iterator[None]:
    """Convert an `OdradekError` to a `click.ClickException` with its message, a hint and exit code 1."""
    try:
        yield
    except OdradekError as error:
        raise click.ClickException(message_with_hint(error)) from error


def message_with_hint(error: OdradekError) -> str:
    """Return the message of an error as a sentence, with a hint if there is one."""
    text = str(error) or type(error).__name__
    if not text.endswith((".", "!", "?")):
        text += "."
    hint = next((hint for kind, hint in _HINTS if isinstance(error, kind)), "")
    return f"{text} {hint}".strip()


def run(coroutine: Coroutine[Any, Any, _T]) -> _T:
    """Run a command's coroutine and report its errors."""
    with reporting_errors():
        return asyncio.run(coroutine)


def echo_json(value: object) -> None:
    """Print one document in the format of --output: JSON on one line, for line-based tools, or YAML."""
    click.echo(document(value))


def document(value: object) -> str:
    """Return a value of JSON types as text in the format of --output, without the last line end.

    YAML documents start with `---`, so that several of them form one stream.
    """
    text = json.dumps(value, ensure_ascii=False)
    context = click.get_current_context(silent=True)
    if context is None or context.meta.get(_OUTPUT) != "yaml":
        return text
    import yaml

    # YAML represents only the plain types exactly, so that subclasses such as enumerations must be converted.
    plain = json.loads(text)
    return yaml.safe_dump(plain, allow_unicode=True, sort_keys=False, explicit_start=True).rstrip("\n")
