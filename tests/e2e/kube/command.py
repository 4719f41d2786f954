"""`python tests/e2e/kube`: start and manage a cluster by hand.

A cluster has a name and stays until `down`. The tests start their own clusters.
"""

from __future__ import annotations

import sys
from pathlib import Path

import click

from kube import binaries, leftovers, packages, state
from kube.cluster import Cluster, ended_by_signals
from kube.host import HarnessError

DEFAULT_NAME = "mine"


def _say(text: str) -> None:
    click.echo(text, err=True)


class _Group(click.Group):
    def invoke(self, ctx: click.Context) -> object:
        """Report a `HarnessError` as a message without a traceback."""
        try:
            return super().invoke(ctx)
        except HarnessError as error:
            raise click.ClickException(str(error)) from error


_name = click.option("--name", default=DEFAULT_NAME, show_default=True, help="Which cluster, if there are several.")


@click.group(cls=_Group)
def main() -> None:
    """A real Kubernetes of 1 to 4 nodes on this machine, without Docker. Needs root, Go and Debian."""


@main.command()
def build() -> None:
    """Install packages and build all programs unless that is done already."""
    packages.ensure(_say)
    click.echo(binaries.ensure(_say))


@main.command()
@click.argument("nodes", type=int, default=1)
@_name
def up(nodes: int, name: str) -> None:
    """Start a cluster and leave it running. If its etcd is killed, the next run removes the cluster."""
    with ended_by_signals():
        cluster = Cluster.start(nodes, name=name, say=_say)
        cluster.keep()
    click.echo(f"{nodes} nodes are Ready; state and logs are in {cluster.run.folder}")
    click.echo(f'eval "$({sys.executable} {Path(__file__).parent} env --name {name})"')


@main.command()
@_name
def down(name: str) -> None:
    """Stop a cluster and remove all of it."""
    folder = state.named_folder(name)
    run = state.load(folder)
    if run is None:
        raise HarnessError(f"there is no cluster in {folder}")
    leftovers.demolish(run.tag, folder)


@main.command()
@_name
def env(name: str) -> None:
    """Print the environment for kubectl and helm in a shell: eval "$(... env)"."""
    for variable, value in Cluster.attach(name, say=_say).environment().items():
        click.echo(f"export {variable}={value!r}")


@main.command()
@click.argument("archive", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@_name
def load(archive: Path, name: str) -> None:
    """Import a docker-archive image into every node."""
    Cluster.attach(name, say=_say).load(archive)


@main.command("kill-node")
@click.argument("number", type=int)
@_name
def kill_node(number: int, name: str) -> None:
    """Kill a node."""
    Cluster.attach(name, say=_say).kill_node(number)


@main.command("start-node")
@click.argument("number", type=int)
@_name
def start_node(number: int, name: str) -> None:
    """Start a killed node."""
    Cluster.attach(name, say=_say).start_node(number)


@main.command("stop-api")
@_name
def stop_api(name: str) -> None:
    """Kill the API server."""
    Cluster.attach(name, say=_say).stop_api_server()


@main.command("start-api")
@_name
def start_api(name: str) -> None:
    """Start the API server."""
    Cluster.attach(name, say=_say).start_api_server()


@main.command()
def sweep() -> None:
    """Remove what interrupted runs have left. Every `up` does this too."""
    with state.registry_lock():
        leftovers.sweep(_say)
