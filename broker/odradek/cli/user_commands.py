"""`odradek user`: users that log in with SCRAM."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from odradek.base.errors import ConfigError
from odradek.cli.shared import client_settings, connection_options, echo_json, output_option, reporting_errors, run
from odradek.cli.tables import Column, Table, show


@click.group()
def user() -> None:
    """Show, add and remove users that log in with a password (SCRAM).

    \b
    Example:
      odradek user add alice
      odradek user list
    """


@user.command("list")
@click.argument("names", nargs=-1, metavar="[USER]…")
@connection_options
@output_option
def list_users(names: tuple[str, ...], bootstrap: str, as_json: bool) -> None:
    """List users and the mechanisms for which they have a password.

    \b
    Example:
      odradek user list
      odradek user list alice --output json
    """
    from odradek.client.admin import Admin

    async def work() -> dict[str, dict[str, int]]:
        async with Admin(client_settings(bootstrap, {})) as admin:
            return await admin.describe_user_scram_credentials(names or None)

    found = run(work())
    if as_json:
        echo_json([{"user": name, "credentials": credentials} for name, credentials in found.items()])
        return
    rows = tuple(
        (name, mechanism, str(iterations))
        for name, credentials in found.items()
        for mechanism, iterations in credentials.items()
    )
    columns = (Column("user"), Column("mechanism"), Column("iterations", right=True))
    show([Table("", columns, rows, empty="No users with passwords.")])


@user.command()
@click.argument("name", metavar="USER")
@click.option(
    "--password-file",
    metavar="FILE",
    help="Read the password from the first line of a file, or of standard input with '-'. Default: ask for it.",
)
@click.option(
    "--mechanism",
    "mechanisms",
    multiple=True,
    default=("SCRAM-SHA-512",),
    show_default=True,
    type=click.Choice(["SCRAM-SHA-256", "SCRAM-SHA-512"], case_sensitive=False),
    help="SCRAM mechanism; repeatable.",
)
@click.option(
    "--iterations",
    default=4096,
    show_default=True,
    type=click.IntRange(4096, 16384),
    help="More iterations make it slower to try passwords.",
)
@connection_options
@output_option
def add(
    *,
    name: str,
    password_file: str | None,
    mechanisms: tuple[str, ...],
    iterations: int,
    bootstrap: str,
    as_json: bool,
) -> None:
    """Add a user, or change its password. Brokers get a salted hash, not the password.

    \b
    Example:
      odradek user add alice
      pwgen 32 1 | odradek user add alice --password-file -
    """
    from odradek.client.admin import Admin
    from odradek.client.administration.access_requests import ScramPassword

    if password_file is None:
        password = click.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
    else:
        with reporting_errors():
            password = _first_line(password_file)
    wanted = [ScramPassword(name, password, mechanism.upper(), iterations) for mechanism in mechanisms]

    async def work() -> None:
        async with Admin(client_settings(bootstrap, {})) as admin:
            await admin.alter_user_scram_credentials(passwords=wanted)

    run(work())
    names = [each.mechanism for each in wanted]
    if as_json:
        echo_json({"user": name, "set": names})
    else:
        click.echo(f"User {name} has a password for {', '.join(names)}.")


@user.command()
@click.argument("name", metavar="USER")
@click.option(
    "--mechanism",
    "mechanisms",
    multiple=True,
    type=click.Choice(["SCRAM-SHA-256", "SCRAM-SHA-512"], case_sensitive=False),
    help="Remove the password for this mechanism only; repeatable.",
)
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
@connection_options
@output_option
def remove(*, name: str, mechanisms: tuple[str, ...], yes: bool, bootstrap: str, as_json: bool) -> None:
    """Remove a user's passwords. Open connections stay; access rules and quotas of the user do, too.

    \b
    Example:
      odradek user remove alice
    """
    from odradek.client.admin import Admin

    if not yes:
        click.confirm(f"Remove the passwords of user {name}?", abort=True, err=True)

    async def work() -> list[str]:
        async with Admin(client_settings(bootstrap, {})) as admin:
            present = (await admin.describe_user_scram_credentials([name]))[name]
            removed = [mechanism.upper() for mechanism in mechanisms] or list(present)
            await admin.alter_user_scram_credentials(deletions=[(name, mechanism) for mechanism in removed])
            return removed

    gone = run(work())
    if as_json:
        echo_json({"user": name, "removed": gone})
    else:
        click.echo(f"User {name} has no password for {', '.join(gone)} any more.")


def _first_line(path: str) -> str:
    """Return the first line of a file or of standard input. Raises `ConfigError`."""
    try:
        text = sys.stdin.read() if path == "-" else Path(path).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(f"--password-file {path} is not a text in UTF-8") from error
    except OSError as error:
        raise ConfigError(f"--password-file {path} cannot be read: {error.strerror}") from error
    lines = text.splitlines()
    if not lines or not lines[0]:
        raise ConfigError(f"--password-file {path}: the first line is empty")
    return lines[0]
