"""`python tests/e2e/kube`: a cluster for people who want to look at one.

Enters: a command line. Leaves: a cluster that stays until `down`, under a name; the tests start their own.
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
        """What the harness has to say is a sentence, not a traceback."""
        try:
            return super().invoke(ctx)
        except HarnessError as error:
            raise click.ClickException(str(error)) from error


_name = click.option("--name", default=DEFAULT_NAME, show_default=True, help="Which cluster, if there are several.")


@click.group(cls=_Group)
def main() -> None:
    """A real Kubernetes of 1 to 4 nodes on this machine, without Docker. Needs root, Go and a Debian."""


@main.command()
def build() -> None:
    """Install packages and build all programs, if that was not done yet."""
    packages.ensure(_say)
    click.echo(binaries.ensure(_say))


@main.command()
@click.argument("nodes", type=int, default=1)
@_name
def up(nodes: int, name: str) -> None:
    """Start a cluster and leave it running; it is swept by the next run if the machine kills its etcd."""
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
    """Print what a shell needs for kubectl and helm: eval "$(... env)"."""
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
    """Lose a node at once."""
    Cluster.attach(name, say=_say).kill_node(number)


@main.command("start-node")
@click.argument("number", type=int)
@_name
def start_node(number: int, name: str) -> None:
    """Bring a lost node back."""
    Cluster.attach(name, say=_say).start_node(number)


@main.command("stop-api")
@_name
def stop_api(name: str) -> None:
    """End the API server."""
    Cluster.attach(name, say=_say).stop_api_server()


@main.command("start-api")
@_name
def start_api(name: str) -> None:
    """Bring the API server back."""
    Cluster.attach(name, say=_say).start_api_server()


@main.command()
def sweep() -> None:
    """Remove what interrupted runs left behind; every `up` does it too."""
    with state.registry_lock():
        leftovers.sweep(_say)
