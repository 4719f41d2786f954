"""`odradek-pod`: the commands that run in the pods of a cluster. The module of a command is imported when it runs.

The operator's objects set the environment. Exit code 1 with a message means that the pod cannot work, and 2 that the
command line is wrong. The commands `broker` and `mirror` do not return: they execute `odradek`.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from importlib import import_module
from pathlib import Path
from typing import Final

import click

from odradek.base.errors import OdradekError
from odradek.base.system_ports import report_termination

_LOG_FORMAT: Final = "%(asctime)s %(levelname)-7s %(name)s: %(message)s"

_SEPARATE: Final = {
    "exporter": (
        "odradek_operator.exporter.exporter_command:exporter",
        "Export lag, partitions and sizes of one cluster.",
    ),
}
"""Commands in other modules, with their one-line help."""


class _Group(click.Group):
    """Imports the other commands when they run; the ZooKeeper image does not have their dependencies."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*super().list_commands(ctx), *_SEPARATE})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _SEPARATE:
            return super().get_command(ctx, cmd_name)
        module, _, attribute = _SEPARATE[cmd_name][0].partition(":")
        command = getattr(import_module(module), attribute)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        rows = [(name, self.commands[name].get_short_help_str(80)) for name in super().list_commands(ctx)]
        rows += [(name, summary) for name, (_, summary) in _SEPARATE.items()]
        with formatter.section("Commands"):
            formatter.write_dl(sorted(rows))


@click.group(cls=_Group, context_settings={"max_content_width": 110})
@click.option("--log-level", type=click.Choice(["DEBUG", "INFO", "WARNING", "ERROR"]), default="INFO", help="Of log.")
def main(log_level: str) -> None:
    """Run the main process of a pod. The operator sets the environment variables of each command."""
    logging.basicConfig(level=log_level, format=_LOG_FORMAT, stream=sys.stderr)


@main.command()
@click.option(
    "--properties",
    type=click.Path(path_type=Path),
    default=Path("/etc/odradek/server.properties"),
    show_default=True,
    help="Mounted file with the cluster's properties.",
)
@click.option(
    "--secrets",
    type=click.Path(path_type=Path),
    default=Path("/etc/odradek-secrets"),
    show_default=True,
    help="Folder with one folder per mounted Secret with properties; may be missing.",
)
@click.option(
    "--output",
    type=click.Path(path_type=Path),
    default=Path("/tmp/server.properties"),
    show_default=True,
    help="File to write the broker's properties to.",
)
@click.option("--print", "only_print", is_flag=True, help="Print the properties and exit.")
@click.option(
    "--api-seconds",
    envvar="API_SECONDS",
    type=click.FloatRange(0, 3600),
    default=20.0,
    show_default=True,
    show_envvar=True,
    help="How long to try the API server before starting with the rack and addresses of the last start.",
)
def broker(properties: Path, secrets: Path, output: Path, *, only_print: bool, api_seconds: float) -> None:
    """Find this pod's rack and addresses, write its properties, and execute its broker.

    Reads CLUSTER, POD_NAME, POD_NAMESPACE, NODE_NAME, LISTENERS and, if set, RACK_TOPOLOGY_KEY and SLOT. The answers of
    the API server are saved in the root of each data volume, for starts while it is not available.
    """
    from odradek_operator.pod.api_reader import REQUEST_SECONDS, ApiReader
    from odradek_operator.pod.broker import (
        become_broker,
        broker_properties,
        end_on_signals,
        read_secrets,
        read_text,
        write_properties,
    )
    from odradek_operator.pod.identity import broker_pod
    from odradek_operator.pod.pod_properties import with_secrets

    end_on_signals()
    try:
        text = with_secrets(read_text(properties), read_secrets(secrets))
        request_seconds = max(1.0, min(REQUEST_SECONDS, api_seconds))
        final = broker_properties(
            text,
            broker_pod(os.environ),
            lambda: ApiReader.in_pod(os.environ, request_seconds=request_seconds),
            remembers=not only_print,
            api_seconds=api_seconds,
        )
        if only_print:
            click.echo(final, nl=False)
            return
        write_properties(output, final)
        become_broker(output, final, os.environ)
    except OdradekError as error:
        report_termination(str(error))
        raise click.ClickException(str(error)) from error


@main.command(context_settings={"ignore_unknown_options": True, "allow_extra_args": True}, add_help_option=False)
@click.pass_context
def mirror(ctx: click.Context) -> None:
    """Execute `odradek mirror` with the same arguments, so that it gets the signals of the kubelet."""
    from odradek_operator.pod.odradek_command import become_odradek

    try:
        become_odradek(["mirror", *ctx.args], os.environ)
    except OdradekError as error:
        report_termination(str(error))
        raise click.ClickException(str(error)) from error


@main.command()
@click.option(
    "--properties",
    type=click.Path(path_type=Path),
    default=Path("/etc/odradek/zookeeper.properties"),
    show_default=True,
    help="Mounted file with the ensemble's properties.",
)
@click.option(
    "--folder",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("/tmp"),
    show_default=True,
    help="Folder for the files that are generated at each start.",
)
@click.option("--metrics-host", default="0.0.0.0", show_default=True, help="Address of metrics and probes.")
@click.option("--metrics-port", type=click.IntRange(0, 65_535), default=9404, show_default=True, help="Their port.")
@click.option("--hosts", help="Comma-separated hosts of the members, instead of their DNS names in Kubernetes.")
@click.option(
    "--peer-port",
    type=click.IntRange(1, 65_535),
    default=2888,
    show_default=True,
    help="Port between members, with --hosts.",
)
@click.option("--election-port", type=click.IntRange(1, 65_535), default=3888, show_default=True, help="Likewise.")
def zookeeper(
    properties: Path, folder: Path, *, metrics_host: str, metrics_port: int, hosts: str | None, **ports: int
) -> None:
    """Run one member of the ensemble and serve its metrics and probes.

    Reads CLUSTER, POD_NAME, POD_NAMESPACE, ENSEMBLE_REPLICAS and, if set, ZOOKEEPER_HEAP_MIB and ZOOKEEPER_JARS.
    """
    from odradek_operator.pod.member_files import Peers
    from odradek_operator.pod.zookeeper_pod import MemberOptions, run

    options = MemberOptions(
        properties=properties,
        folder=folder,
        metrics_host=metrics_host,
        metrics_port=metrics_port,
        peers=None if hosts is None else Peers(hosts=tuple(hosts.split(",")), **ports),
    )
    try:
        code = asyncio.run(run(options, os.environ))
    except OdradekError as error:
        report_termination(str(error))
        raise click.ClickException(str(error)) from error
    sys.exit(code)
