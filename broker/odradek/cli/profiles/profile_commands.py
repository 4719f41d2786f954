"""`odradek profile`: creates, chooses, shows, changes and deletes profiles."""

from __future__ import annotations

from collections.abc import Mapping

import click

from odradek.cli.profiles.profile_names import complete_profiles
from odradek.cli.profiles.profile_store import (
    PROFILE_VARIABLE,
    ProfileError,
    Profiles,
    parse_yaml,
    profiles_path,
    properties_of,
    write_profiles,
)
from odradek.cli.shared import echo_json, load_profiles, output_option, property_option, reporting_errors
from odradek.cli.tables import Column, Table, show

SERVERS = "bootstrap.servers"


@click.group()
def profile() -> None:
    """Manage profiles: named client properties, so that commands need no options to connect.

    Commands use the profile of --profile or ODRADEK_PROFILE, else the current one, which `use` chooses. Their options
    precede it. With --command-config, the current profile is not used. The file ~/.config/odradek/profiles.yaml, or
    in XDG_CONFIG_HOME, has all profiles.

    \b
    Example:
      odradek profile create prod -b kafka-1.example.com:9093 --from-file client.properties
      odradek profile list
    """


@profile.command()
@click.argument("name")
@click.option("-b", "--bootstrap-server", "servers", metavar="HOST:PORT,…", help="Brokers to connect to first.")
@click.option(
    "--from-file",
    "path",
    type=click.Path(exists=True, dir_okay=False),
    help="File of client properties, such as security.protocol and sasl.jaas.config.",
)
@property_option
@click.option("--use", "is_used", is_flag=True, help="Make it the current profile.")
@click.option("--replace", "replaces", is_flag=True, help="Replace the profile if it exists.")
@output_option
def create(
    name: str,
    servers: str | None,
    path: str | None,
    *,
    properties: Mapping[str, str],
    is_used: bool,
    replaces: bool,
    as_json: bool,
) -> None:
    """Create the profile NAME. The options precede the file.

    \b
    Example:
      odradek profile create local -b 127.0.0.1:9092 -X compression.type=zstd
      odradek profile create secured -b kafka-1.example.com:9093 --from-file client.properties
    """
    from odradek.client.config_files import read_config_file

    with reporting_errors():
        given = {} if path is None else read_config_file(path, option="--from-file")
        given = {**given, **properties, **({} if servers is None else {SERVERS: servers})}
        _check(given)
        found = load_profiles()
        if name in found.by_name and not replaces:
            raise ProfileError(f"The profile {name} already exists: use --replace, or `odradek profile edit {name}`.")
        changed = found.with_profile(name, given)
        _write(changed.used(name) if is_used else changed)
    if as_json:
        echo_json({"name": name, "created": True, "current": changed.current == name or is_used})
    else:
        click.echo(f"Profile {name} was created" + (" and is the current one." if is_used else "."))


@profile.command()
@click.argument("name", required=False, shell_complete=complete_profiles)
@click.option("--none", "uses_none", is_flag=True, help="Use no profile.")
@output_option
def use(name: str | None, uses_none: bool, as_json: bool) -> None:
    """Make NAME the current profile.

    \b
    Example:
      odradek profile create test -b kafka-test.example.com:9092 --replace
      odradek profile use test
      odradek profile use --none
    """
    if (name is None) != uses_none:
        raise click.UsageError("Give either a profile or --none.")
    with reporting_errors():
        _write(load_profiles().used(name))
    if as_json:
        echo_json({"current": name})
    else:
        click.echo("No profile is current." if name is None else f"Profile {name} is the current one.")


@profile.command("list")
@output_option
def list_profiles(as_json: bool) -> None:
    """List profiles with their brokers.

    \b
    Example:
      odradek profile list
      odradek profile list --output json
    """
    with reporting_errors():
        found = load_profiles()
    names = sorted(found.by_name)
    if as_json:
        echo_json(
            [
                {"name": name, "current": name == found.current, "bootstrap_servers": found.by_name[name].get(SERVERS)}
                for name in names
            ]
        )
        return
    rows = tuple((name, "yes" if name == found.current else "", found.by_name[name].get(SERVERS, "")) for name in names)
    columns = (Column("PROFILE"), Column("CURRENT"), Column("BOOTSTRAP SERVERS"))
    show([Table("", columns, rows, empty="There are no profiles.")])


@profile.command("show")
@click.argument("name", required=False, shell_complete=complete_profiles, envvar=PROFILE_VARIABLE)
@output_option
def show_profile(name: str | None, as_json: bool) -> None:
    """Show the properties of the profile NAME, or of the current one. Secrets are hidden.

    \b
    Example:
      odradek profile create test -b kafka-test.example.com:9092 --replace
      odradek profile show test
      odradek profile show test --output json
    """
    from odradek.cli.profiles.hidden_values import without_secrets

    with reporting_errors():
        found = load_profiles()
        name = _given_or_current(name, found)
        properties = without_secrets(found.get(name))
    if as_json:
        echo_json({"name": name, "current": name == found.current, "properties": properties})
        return
    rows = tuple(sorted(properties.items()))
    show([Table(f"Profile {name}", (Column("PROPERTY"), Column("VALUE")), rows, empty="It has no properties.")])


@profile.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME…", shell_complete=complete_profiles)
@output_option
def delete(names: tuple[str, ...], as_json: bool) -> None:
    """Delete profiles.

    \b
    Example:
      odradek profile create old -b kafka-old.example.com:9092 --replace
      odradek profile delete old
    """
    with reporting_errors():
        found = load_profiles()
        deleted = list(dict.fromkeys(names))
        for name in deleted:
            found = found.without(name)
        _write(found)
    if as_json:
        echo_json({"deleted": deleted})
    else:
        click.echo(f"Deleted: {', '.join(deleted)}.")


@profile.command()
@click.argument("name", required=False, shell_complete=complete_profiles, envvar=PROFILE_VARIABLE)
@property_option
@click.option("--remove", multiple=True, metavar="KEY", help="Property to remove; repeatable.")
@output_option
def edit(name: str | None, properties: Mapping[str, str], remove: tuple[str, ...], as_json: bool) -> None:
    """Change the profile NAME, or the current one: with options, or else in an editor.

    The editor is that of VISUAL or EDITOR. It shows ******** for secrets, which keeps them.

    \b
    Example:
      odradek profile create test -b kafka-test.example.com:9092 -X client.id=tests --replace
      odradek profile edit test -X compression.type=lz4 --remove client.id
      odradek profile edit test
    """
    with reporting_errors():
        found = load_profiles()
        name = _given_or_current(name, found)
        before = found.get(name)
        if properties or remove:
            for key in remove:
                if key not in before:
                    raise ProfileError(f"The profile {name} has no property {key}.")
            changed = {**{key: value for key, value in before.items() if key not in remove}, **properties}
        else:
            changed = _edited(name, before)
        is_changed = changed != before
        if is_changed:
            _check(changed)
            _write(found.with_profile(name, changed))
    if as_json:
        echo_json({"name": name, "changed": is_changed})
    else:
        click.echo(f"Profile {name} was changed." if is_changed else "Nothing was changed.")


def _edited(name: str, before: Mapping[str, str]) -> dict[str, str]:
    """Return the properties after the editor has ended. Raises `ProfileError`."""
    import yaml

    from odradek.cli.profiles.hidden_values import with_kept_secrets, without_secrets

    text = f"# Client properties of the profile {name}.\n"
    if before:
        text += yaml.safe_dump(without_secrets(before), sort_keys=False)
    saved = click.edit(text, extension=".yaml")
    if saved is None:
        return dict(before)
    where = "The edited profile"
    return with_kept_secrets(properties_of(parse_yaml(saved, where=where), where=where), before)


def _write(profiles: Profiles) -> None:
    write_profiles(profiles_path(), profiles)


def _given_or_current(name: str | None, found: Profiles) -> str:
    chosen = name or found.current
    if chosen is None:
        raise ProfileError("There is no current profile: name one, or choose one with `odradek profile use`.")
    return chosen


def _check(properties: Mapping[str, str]) -> None:
    """Print a warning for each unknown property. Raises `ConfigError` for an invalid value."""
    from odradek.client.settings import ClientSettings

    _, warnings = ClientSettings.parse(properties)
    for warning in warnings:
        click.echo(f"Warning: {warning}", err=True)
