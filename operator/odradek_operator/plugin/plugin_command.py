"""`kubectl odradek`: the commands of the plugin. kubectl runs the script `kubectl-odradek`."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from odradek.base.errors import OdradekError
from odradek_operator.crds import DEFAULT_VERSION
from odradek_operator.kube.api.api_client import KubernetesClient, KubernetesError
from odradek_operator.kube.api.object_kinds import Kind
from odradek_operator.objects.names import CLIENT_CONFIG_FILE, Component
from odradek_operator.plugin.kubeconfig import connect
from odradek_operator.plugin.restart_requests import PluginError, find_target, request_restart
from odradek_operator.plugin.roll_watch import follow_roll
from odradek_operator.plugin.status_rows import SHOWN, StatusRow, status_row, status_table
from odradek_operator.plugin.user_login import read_login, write_login

_T = TypeVar("_T")
_COMPONENTS: Final = {"brokers": Component.KAFKA, "zookeeper": Component.ZOOKEEPER}


@dataclass(frozen=True, slots=True, kw_only=True)
class KubeOptions:
    """The options that choose the API server and the namespace."""

    namespace: str | None
    context: str | None
    kubeconfig: str | None

    def run(self, work: Callable[[KubernetesClient, str], Awaitable[_T]]) -> _T:
        """Call `work` with a client and the namespace. Errors become messages with exit code 1."""

        async def connected() -> _T:
            session = connect(kubeconfig=self.kubeconfig, context=self.context, namespace=self.namespace)
            try:
                return await work(session.client, session.namespace)
            finally:
                session.client.close()

        try:
            return asyncio.run(connected())
        except OdradekError as error:
            raise click.ClickException(str(error)) from error


def kube_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add kubectl's options of the same names; the parameters are those of `KubeOptions`."""
    command = click.option("--kubeconfig", type=click.Path(), help="Kubeconfig; default: KUBECONFIG.")(command)
    command = click.option("--context", help="Context of the kubeconfig; default: the current one.")(command)
    return click.option("-n", "--namespace", help="Namespace; default: that of the context.")(command)


timeout_option = click.option(
    "--timeout",
    "timeout_seconds",
    type=click.FloatRange(0, min_open=True),
    metavar="SECONDS",
    help="Fail if the roll takes longer.  [default: no limit]",
)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(DEFAULT_VERSION, prog_name="kubectl-odradek")
def main() -> None:
    """Work with the Clusters, Topics, Users, Pipelines and Mirrors of Odradek.

    \b
    Example:
      kubectl odradek status -A
      kubectl odradek restart demo-kafka-1 --watch
    """


@main.command()
@click.argument("target", metavar="POD|CLUSTER")
@kube_options
@click.option(
    "--component",
    type=click.Choice(list(_COMPONENTS)),
    default="brokers",
    show_default=True,
    help="Which pods of a Cluster to restart.",
)
@click.option("-w", "--watch", "watches", is_flag=True, help="Wait until the restart is done.")
@timeout_option
def restart(target: str, component: str, watches: bool, timeout_seconds: float | None, **options: Any) -> None:
    """Restart the pod of a broker or ZooKeeper member, or all brokers of a Cluster, one pod at a time.

    The operator restarts a pod when no partition falls below its min.insync.replicas without it, the pod of the
    controller last. The specification of the Cluster does not change.

    \b
    Example:
      kubectl odradek restart demo-kafka-1
      kubectl odradek restart demo --watch --timeout 1800
      kubectl odradek restart demo --component zookeeper -n shop
    """

    async def work(client: KubernetesClient, namespace: str) -> None:
        found = await find_target(client, namespace, target, _COMPONENTS[component])
        await request_restart(client, namespace, found, now=datetime.now(UTC))
        click.echo(f"The operator was asked to restart {', '.join(found.pods)}.")
        if watches:
            await follow_roll(client, namespace, found.cluster, say=click.echo, timeout_seconds=timeout_seconds)

    KubeOptions(**options).run(work)


@main.command()
@click.argument("cluster")
@kube_options
@timeout_option
def watch(cluster: str, timeout_seconds: float | None, **options: Any) -> None:
    """Show the progress of a rolling restart of CLUSTER until it is done.

    \b
    Example:
      kubectl odradek watch demo
      kubectl odradek watch demo --timeout 600
    """

    async def work(client: KubernetesClient, namespace: str) -> None:
        await follow_roll(client, namespace, cluster, say=click.echo, timeout_seconds=timeout_seconds)

    KubeOptions(**options).run(work)


@main.command()
@click.argument("user")
@kube_options
@click.option(
    "-d",
    "--directory",
    type=click.Path(path_type=Path),
    help="Write all files of the Secret to this directory instead, readable only by you.",
)
@click.option("--overwrite", is_flag=True, help="Replace existing files of the directory.")
@click.option("--file", "name", default=CLIENT_CONFIG_FILE, show_default=True, help="The file to print.")
def credentials(user: str, directory: Path | None, overwrite: bool, name: str, **options: Any) -> None:
    """Print the client.properties of USER, with its password or key, or write the files of its Secret.

    \b
    Example:
      kubectl odradek credentials clerk > client.properties
      kubectl odradek credentials clerk --directory clerk/
      kubectl odradek credentials clerk --file password
    """
    files = KubeOptions(**options).run(lambda client, namespace: read_login(client, namespace, user))
    try:
        if directory is not None:
            for path in write_login(directory, files, overwrite=overwrite):
                click.echo(path)
        elif name in files:
            click.echo(files[name], nl=False)
        else:
            raise PluginError(f"The Secret of User {user} has no file {name}: it has {', '.join(sorted(files))}.")
    except PluginError as error:
        raise click.ClickException(str(error)) from error


@main.command()
@kube_options
@click.option("-A", "--all-namespaces", "everywhere", is_flag=True, help="Show the resources of all namespaces.")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
def status(everywhere: bool, output: str, **options: Any) -> None:
    """Show Clusters, Topics, Users, Pipelines and Mirrors with their states in one table.

    \b
    Example:
      kubectl odradek status
      kubectl odradek status -A --output json
    """

    async def work(client: KubernetesClient, namespace: str) -> list[StatusRow]:
        return await _rows(client, None if everywhere else namespace)

    rows = KubeOptions(**options).run(work)
    if output == "json":
        click.echo(json.dumps([asdict(row) for row in rows]))
    else:
        click.echo(status_table(rows) if rows else "There are no resources.")


async def _rows(client: KubernetesClient, namespace: str | None) -> list[StatusRow]:
    found = []
    for kind in SHOWN:
        try:
            bodies = await client.list(kind, namespace)
        except KubernetesError as error:
            # A chart of an earlier version does not define every kind.
            if error.status == HTTPStatus.NOT_FOUND and kind is not Kind.CLUSTER:
                continue
            raise
        found += sorted((status_row(kind, body) for body in bodies), key=lambda row: (row.namespace, row.name))
    return found
