"""What the sub-commands share: their common options, the way to the event loop, and how errors are told.

An `OdradekError` becomes one sentence on standard error and exit code 1, with a hint at what to do where one is known.
Nothing of the client library is imported before a command runs.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from odradek.base.errors import (
    GroupIdNotFoundError,
    NetworkError,
    OdradekError,
    RequestTimedOutError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
)

if TYPE_CHECKING:
    from odradek.client.settings import ClientSettings

_T = TypeVar("_T")
_F = TypeVar("_F", bound=Callable[..., Any])

DEFAULT_BOOTSTRAP: Final = "127.0.0.1:9092"
BOOTSTRAP_VARIABLE: Final = "ODRADEK_BOOTSTRAP_SERVER"
API_TIMEOUT_MS: Final = 20_000
"""Somebody waits at a terminal: less patience than a program's 60 s."""

_HINTS: Final[tuple[tuple[type[OdradekError], str], ...]] = (
    (NetworkError, f"Does a broker listen there? See --bootstrap-server and {BOOTSTRAP_VARIABLE}."),
    (RequestTimedOutError, f"Does a broker listen there? See --bootstrap-server and {BOOTSTRAP_VARIABLE}."),
    (UnknownTopicOrPartitionError, "`odradek topic list` shows what is there, `odradek topic create` makes one."),
    (TopicAlreadyExistsError, "`odradek topic describe` shows it."),
    (GroupIdNotFoundError, "`odradek group list` shows the groups that are there."),
)


def bootstrap_option(command: _F) -> _F:
    """`--bootstrap-server`."""
    return click.option(
        "-b",
        "--bootstrap-server",
        "bootstrap",
        default=DEFAULT_BOOTSTRAP,
        envvar=BOOTSTRAP_VARIABLE,
        show_default=True,
        show_envvar=True,
        metavar="HOST:PORT,…",
        help="Where to find the cluster; one broker that lives is enough.",
    )(command)


def output_option(command: _F) -> _F:
    """`--output text|json`; the parameter is called `as_json`."""
    return click.option(
        "-o",
        "--output",
        "as_json",
        type=click.Choice(["text", "json"]),
        default="text",
        show_default=True,
        callback=lambda _context, _parameter, value: value == "json",
        help="For people or for programs.",
    )(command)


def property_option(command: _F) -> _F:
    """`-X key=value`, a client property by Kafka's name; the parameter is called `properties`."""
    return click.option(
        "-X",
        "--property",
        "properties",
        multiple=True,
        metavar="KEY=VALUE",
        callback=lambda _context, _parameter, values: pairs(values),
        help="A client property by Kafka's name, such as compression.type=zstd; repeatable.",
    )(command)


def pairs(values: Iterable[str]) -> dict[str, str]:
    """`KEY=VALUE` arguments as a mapping. Raises `click.BadParameter` for one without `=`."""
    found = {}
    for value in values:
        key, separator, text = value.partition("=")
        if not separator or not key.strip():
            raise click.BadParameter(f"{value!r} is not of the form KEY=VALUE.")
        found[key.strip()] = text
    return found


def client_settings(bootstrap: str, properties: Mapping[str, str], **more: object) -> ClientSettings:
    """Settings from the command line; a property that is unknown is told on standard error, a bad one is an error."""
    from odradek.client.settings import ClientSettings

    given = {"default.api.timeout.ms": str(API_TIMEOUT_MS), **{key: str(value) for key, value in more.items()}}
    settings, warnings = ClientSettings.parse({**given, **properties, "bootstrap.servers": bootstrap})
    for warning in warnings:
        click.echo(f"Warning: {warning}", err=True)
    return settings


@contextmanager
def reporting_errors() -> Iterator[None]:
    """Errors that are raised on purpose become `click.ClickException`: their text, a hint, exit code 1."""
    try:
        yield
    except OdradekError as error:
        raise click.ClickException(sentence(error)) from error


def sentence(error: OdradekError) -> str:
    """An error as a person reads it: its text as a sentence, and a hint where one is known."""
    text = str(error) or type(error).__name__
    if not text.endswith((".", "!", "?")):
        text += "."
    hint = next((hint for kind, hint in _HINTS if isinstance(error, kind)), "")
    return f"{text} {hint}".strip()


def run(coroutine: Coroutine[Any, Any, _T]) -> _T:
    """Run a command's coroutine to its end, with errors told in a sentence."""
    with reporting_errors():
        return asyncio.run(coroutine)


def echo_json(value: object) -> None:
    """One JSON document on one line, so that line-based tools can read it."""
    click.echo(json.dumps(value, ensure_ascii=False))
