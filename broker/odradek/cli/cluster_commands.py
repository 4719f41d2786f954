"""`odradek cluster`: the brokers, the health of the partitions, the log directories and the features."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from odradek.cli.shared import client_settings, connection_options, echo_json, output_option, run
from odradek.cli.tables import show

if TYPE_CHECKING:
    from odradek.client.administration.feature_admin import FeatureMetadata
    from odradek.client.models import ClusterDescription, LogDirDescription, TopicDescription


@click.group()
def cluster() -> None:
    """Show the brokers, the health of the partitions, the log directories and the features.

    \b
    Example:
      odradek cluster brokers
      odradek cluster health
    """


@cluster.command()
@connection_options
@output_option
def info(bootstrap: str, as_json: bool) -> None:
    """Show the id of the cluster, its controller and its live brokers.

    \b
    Example:
      odradek cluster info
    """
    from odradek.cli import render_cluster
    from odradek.client.admin import Admin

    async def work() -> ClusterDescription:
        async with Admin(client_settings(bootstrap, {})) as admin:
            return await admin.describe_cluster()

    found = run(work())
    if as_json:
        echo_json(render_cluster.cluster_value(found))
    else:
        show([render_cluster.broker_list(found)])


@cluster.command()
@connection_options
@output_option
def brokers(bootstrap: str, as_json: bool) -> None:
    """Show each broker with its address, its partitions and their size.

    Brokers that have replicas but are not alive are included.

    \b
    Example:
      odradek cluster brokers
      odradek cluster brokers --output yaml
    """
    from odradek.cli import render_cluster
    from odradek.client.admin import Admin

    async def work() -> list[render_cluster.BrokerLoad]:
        async with Admin(client_settings(bootstrap, {})) as admin:
            described = await admin.describe_cluster()
            topics = await admin.describe_topics(await admin.list_topics(internal=True))
            directories = await admin.describe_log_dirs(each.node_id for each in described.brokers)
            return render_cluster.broker_loads(described, topics.values(), directories)

    found = run(work())
    if as_json:
        echo_json([render_cluster.broker_load_value(each) for each in found])
    else:
        show([render_cluster.broker_load_table(found)])


@cluster.command()
@connection_options
@output_option
def features(bootstrap: str, as_json: bool) -> None:
    """Show the versioned features (KIP-584): the levels in use, and the versions that a broker supports.

    Odradek has `transaction.version`. Apache Kafka with ZooKeeper has none.

    \b
    Example:
      odradek cluster features
    """
    from odradek.cli import render_cluster
    from odradek.client.admin import Admin

    async def work() -> FeatureMetadata:
        async with Admin(client_settings(bootstrap, {})) as admin:
            return await admin.describe_features()

    found = run(work())
    if as_json:
        echo_json(render_cluster.features_value(found))
    else:
        show([render_cluster.features_table(found)])


@cluster.command()
@connection_options
@output_option
@click.pass_context
def health(context: click.Context, bootstrap: str, as_json: bool) -> None:
    """Show whether every partition has a leader and all replicas in sync. The exit code is 1 if not.

    \b
    Example:
      odradek cluster health
    """
    from odradek.cli import render_cluster
    from odradek.client.admin import Admin

    async def work() -> tuple[ClusterDescription, list[TopicDescription]]:
        async with Admin(client_settings(bootstrap, {})) as admin:
            described = await admin.describe_cluster()
            topics = await admin.describe_topics(await admin.list_topics(internal=True))
            return described, list(topics.values())

    described, topics = run(work())
    found = render_cluster.health_of(described, topics)
    if as_json:
        echo_json(render_cluster.health_value(found))
    else:
        show([render_cluster.health_table(found)])
    if not found.is_healthy:
        context.exit(1)


@cluster.command("log-dirs")
@click.option("--broker", "brokers", multiple=True, type=click.IntRange(0), help="Only this broker; repeatable.")
@connection_options
@output_option
def log_dirs(brokers: tuple[int, ...], bootstrap: str, as_json: bool) -> None:
    """Show the log directories of the brokers, with their replicas and the space on their disks.

    \b
    Example:
      odradek cluster log-dirs
    """
    from odradek.cli import render_cluster
    from odradek.client.admin import Admin

    async def work() -> dict[int, list[LogDirDescription]]:
        async with Admin(client_settings(bootstrap, {})) as admin:
            return await admin.describe_log_dirs(brokers or None)

    found = run(work())
    if as_json:
        echo_json(render_cluster.log_dir_values(found))
    else:
        show([render_cluster.log_dir_table(found)])
