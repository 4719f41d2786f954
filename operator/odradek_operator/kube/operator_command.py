"""`odradek-operator`: the command of the operator's image."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import sys
from pathlib import Path
from typing import Final

import click

from odradek.base.errors import OdradekError
from odradek_operator.crds import DEFAULT_VERSION
from odradek_operator.kube.operator import Operator
from odradek_operator.kube.operator_settings import OperatorSettings
from odradek_operator.objects.podspec import ImageSettings

_NAMESPACE_FILE: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
LOG_LEVELS: Final = ("DEBUG", "INFO", "WARNING", "ERROR")


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(DEFAULT_VERSION, prog_name="odradek-operator")
def main() -> None:
    """The Odradek operator: reconciles Cluster and Topic resources in Kubernetes and ZooKeeper."""


@main.command()
@click.option(
    "--watch-namespaces",
    envvar="WATCH_NAMESPACES",
    default="",
    show_envvar=True,
    help="Comma-separated namespaces to watch; empty for all namespaces.",
)
@click.option(
    "--image-prefix",
    envvar="ODRADEK_IMAGE_PREFIX",
    default="odradek",
    show_default=True,
    show_envvar=True,
    help="Registry and folder of the images, before /broker:VERSION.",
)
@click.option(
    "--image-pull-policy",
    envvar="ODRADEK_IMAGE_PULL_POLICY",
    type=click.Choice(["IfNotPresent", "Always", "Never"]),
    default="IfNotPresent",
    show_default=True,
    show_envvar=True,
)
@click.option(
    "--leader-election/--no-leader-election",
    envvar="LEADER_ELECTION",
    default=True,
    show_default=True,
    show_envvar=True,
    help="Serve a namespace only while holding its Lease, so that no two operators serve the same one.",
)
@click.option(
    "--lease-seconds",
    envvar="LEASE_SECONDS",
    type=click.IntRange(5, 300),
    default=15,
    show_default=True,
    show_envvar=True,
    help="Seconds after which another operator takes over if Leases are not renewed.",
)
@click.option(
    "--identity",
    envvar="POD_NAME",
    default=lambda: f"{socket.gethostname()}-{os.getpid()}",
    show_envvar=True,
    help="Name in Leases and Events, unique among running operators of a namespace.  [default: host and process]",
)
@click.option("--namespace", envvar="POD_NAMESPACE", default=None, show_envvar=True, help="The operator's namespace.")
@click.option(
    "--idle-seconds",
    envvar="IDLE_SECONDS",
    type=click.FloatRange(1, 3600),
    default=30.0,
    show_default=True,
    help="Maximum seconds between two reconciliations of a cluster without events.",
)
@click.option(
    "--writes-per-second",
    envvar="WRITES_PER_SECOND",
    type=click.FloatRange(1, 1000),
    default=15.0,
    show_default=True,
    help="Maximum writes per second to the API server.",
)
@click.option(
    "--broker-api-seconds",
    envvar="BROKER_API_SECONDS",
    type=click.FloatRange(0, 3600),
    default=None,
    show_envvar=True,
    help="How long a starting broker tries the API server before it uses its last known rack and addresses; a change "
    "restarts brokers.  [default: 20, without a restart]",
)
@click.option("--metrics-port", envvar="METRICS_PORT", type=click.IntRange(0, 65_535), default=8080, show_default=True)
@click.option("--log-level", envvar="LOG_LEVEL", type=click.Choice(LOG_LEVELS, case_sensitive=False), default="INFO")
def run(
    *,
    watch_namespaces: str,
    image_prefix: str,
    image_pull_policy: str,
    leader_election: bool,
    lease_seconds: int,
    identity: str,
    namespace: str | None,
    idle_seconds: float,
    writes_per_second: float,
    broker_api_seconds: float | None,
    metrics_port: int,
    log_level: str,
) -> None:
    """Run until SIGTERM. Needs a pod's service account, or KUBECONFIG."""
    logging.basicConfig(
        level=log_level.upper(), stream=sys.stderr, format="%(asctime)s %(levelname)-7s %(name)s: %(message)s"
    )
    # httpx and kubernetes log every request; the operator logs what matters itself.
    logging.getLogger("kopf").setLevel(max(logging.WARNING, logging.getLogger().level))
    settings = OperatorSettings(
        images=ImageSettings(prefix=image_prefix, pull_policy=image_pull_policy, api_seconds=broker_api_seconds),
        namespaces=tuple(name.strip() for name in watch_namespaces.split(",") if name.strip()),
        identity=identity,
        own_namespace=namespace or _own_namespace(),
        leader_election=leader_election,
        lease_seconds=lease_seconds,
        idle_seconds=idle_seconds,
        writes_per_second=writes_per_second,
        metrics_port=metrics_port,
    )
    try:
        asyncio.run(_run(settings))
    except OdradekError as error:
        raise click.ClickException(str(error)) from error


async def _run(settings: OperatorSettings) -> None:
    await Operator(settings).run()


def _own_namespace() -> str:
    try:
        return _NAMESPACE_FILE.read_text(encoding="utf-8").strip()
    except OSError:
        return "default"
