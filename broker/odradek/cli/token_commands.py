"""`odradek token`: create, renew, expire and list delegation tokens."""

from __future__ import annotations

import sys
from base64 import b64decode
from binascii import Error as Base64Error

import click

from odradek.cli.shared import client_settings, connection_options, echo_json, output_option, run
from odradek.cli.tables import show


@click.group()
def token() -> None:
    """Create, renew, expire and list delegation tokens.

    With a token, clients log in by SCRAM as the user who owns it, until it expires. The commands need the login of a
    user, not of a token.

    \b
    Example:
      odradek token create --renewer User:bob --command-config alice.properties
      odradek token list --command-config alice.properties
    """


def _decoded(_context: click.Context, _parameter: click.Parameter, value: str) -> bytes:
    """Return the HMAC. A `-` stands for standard input, because other users can see the arguments of a process."""
    text = sys.stdin.readline() if value == "-" else value
    try:
        hmac = b64decode(text.strip(), validate=True)
    except (Base64Error, ValueError):
        hmac = b""
    if not hmac:
        raise click.BadParameter("the HMAC must be in base64, as `odradek token create` shows it.")
    return hmac


hmac_argument = click.argument("hmac", callback=_decoded)


@token.command()
@click.option("--owner", metavar="User:NAME", help="Owner of the token; default: the user who logs in.")
@click.option(
    "--renewer", "renewers", multiple=True, metavar="User:NAME", help="User who may also renew it; repeatable."
)
@click.option(
    "--max-lifetime-ms",
    type=click.IntRange(-1),
    default=-1,
    help="Time after which it cannot be renewed; default: the brokers' delegation.token.max.lifetime.ms.",
)
@connection_options
@output_option
def create(
    *, owner: str | None, renewers: tuple[str, ...], max_lifetime_ms: int, bootstrap: str, as_json: bool
) -> None:
    """Create a token, and print its id and its HMAC, which is the secret.

    Clients log in with the id as the user name, the HMAC as the password and the option tokenauth="true" of
    ScramLoginModule. A token for another owner needs the right CreateTokens on that user.

    \b
    Example:
      odradek token create --renewer User:bob --command-config alice.properties
    """
    from odradek.cli import render
    from odradek.client.admin import Admin
    from odradek.client.models import DelegationTokenDescription

    async def work() -> DelegationTokenDescription:
        async with Admin(client_settings(bootstrap, {})) as admin:
            return await admin.create_delegation_token(owner=owner, renewers=renewers, max_lifetime_ms=max_lifetime_ms)

    created = run(work())
    if as_json:
        echo_json(render.token_value(created, with_hmac=True))
    else:
        show([render.token_list([created], with_hmac=True)])


@token.command()
@hmac_argument
@click.option(
    "--period-ms",
    type=click.IntRange(-1),
    default=-1,
    help="Time until it expires; default: the brokers' delegation.token.expiry.time.ms.",
)
@connection_options
@output_option
def renew(hmac: bytes, period_ms: int, bootstrap: str, as_json: bool) -> None:
    """Renew the token with the HMAC in base64; - reads it from standard input.

    \b
    Example:
      odradek token renew - --command-config bob.properties < hmac.txt
    """
    from odradek.cli import render
    from odradek.client.admin import Admin

    async def work() -> int:
        async with Admin(client_settings(bootstrap, {})) as admin:
            return await admin.renew_delegation_token(hmac, period_ms=period_ms)

    expiry_ms = run(work())
    if as_json:
        echo_json({"expiry_timestamp": expiry_ms})
    else:
        click.echo(f"The token expires at {render.time_text(expiry_ms)}.")


@token.command()
@hmac_argument
@click.option(
    "--period-ms", type=click.IntRange(-1), default=-1, help="Time until it expires; default: it is removed at once."
)
@connection_options
@output_option
def expire(hmac: bytes, period_ms: int, bootstrap: str, as_json: bool) -> None:
    """Remove the token with the HMAC in base64, or let it expire earlier; - reads the HMAC from standard input.

    Clients that are connected stay so until the expiry that the token had when they logged in.

    \b
    Example:
      odradek token expire - --command-config alice.properties < hmac.txt
    """
    from odradek.cli import render
    from odradek.client.admin import Admin

    async def work() -> int:
        async with Admin(client_settings(bootstrap, {})) as admin:
            return await admin.expire_delegation_token(hmac, period_ms=period_ms)

    expiry_ms = run(work())
    if as_json:
        echo_json({"expiry_timestamp": expiry_ms, "removed": period_ms < 0})
    elif period_ms < 0:
        click.echo("The token was removed.")
    else:
        click.echo(f"The token expires at {render.time_text(expiry_ms)}.")


@token.command("list")
@click.option(
    "--owner", "owners", multiple=True, metavar="User:NAME", help="Only tokens that this user has, requested or renews."
)
@click.option("--show-hmac", is_flag=True, help="Show the HMACs, with which anyone can use the tokens.")
@connection_options
@output_option
def list_tokens(owners: tuple[str, ...], show_hmac: bool, bootstrap: str, as_json: bool) -> None:
    """List the tokens that the user who logs in may see.

    \b
    Example:
      odradek token list --owner User:alice --output json
    """
    from odradek.cli import render
    from odradek.client.admin import Admin
    from odradek.client.models import DelegationTokenDescription

    async def work() -> list[DelegationTokenDescription]:
        async with Admin(client_settings(bootstrap, {})) as admin:
            return await admin.describe_delegation_tokens(owners or None)

    tokens = run(work())
    if as_json:
        echo_json([render.token_value(each, with_hmac=show_hmac) for each in tokens])
    else:
        show([render.token_list(tokens, with_hmac=show_hmac)])
