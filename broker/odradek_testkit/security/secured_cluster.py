"""Brokers that use SASL_SSL among themselves, and PLAINTEXT for clients."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final
from uuid import uuid4

from kazoo.client import KazooClient

from odradek.security.sasl.credentials import SHA_512, derive
from odradek.security.sasl.scram import LOGIN_MODULE
from odradek.testing.free_ports import free_ports
from odradek.zk.layout import encode_config
from odradek_testkit.broker_process import OdradekBroker
from odradek_testkit.security.certificates import Authority, key_pem, pem

BROKER_PASSWORD: Final = "of the brokers"
REAUTH_MS: Final = 3_000
"""Time after which brokers must authenticate again."""


class SecuredCluster:
    """Brokers with a PLAINTEXT listener for clients and one with SASL_SSL for brokers."""

    def __init__(self, folder: Path, zookeeper: str) -> None:
        """Write keys to `folder`, and the user of the brokers to a new root of ZooKeeper. Starts no broker."""
        self.folder = folder
        self.root = f"{zookeeper}/{uuid4().hex}"
        authority = Authority.root("root")
        issued = authority.issue("broker")
        (folder / "root.pem").write_text(pem(authority.certificate))
        (folder / "broker.pem").write_text(key_pem(issued.key) + issued.chain_pem)
        client = KazooClient(hosts=zookeeper)
        client.start()
        try:
            path = self.root.removeprefix(zookeeper)
            value = encode_config({SHA_512.name: derive(BROKER_PASSWORD, SHA_512).to_text()})
            client.create(f"{path}/config/users/broker", value, makepath=True)
        finally:
            client.stop()
            client.close()
        self.brokers: list[OdradekBroker] = []
        self.between: list[int] = []

    def properties(self, port: int, between: int, replicas: int = 3) -> dict[str, str]:
        """Properties of a broker of this project or of Apache Kafka. `port` is for clients, `between` for brokers."""
        return {
            "listeners": f"CLIENTS://localhost:{port},BETWEEN://localhost:{between}",
            "listener.security.protocol.map": "CLIENTS:PLAINTEXT,BETWEEN:SASL_SSL",
            "inter.broker.listener.name": "BETWEEN",
            "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
            "sasl.enabled.mechanisms": "SCRAM-SHA-512",
            "listener.name.between.scram-sha-512.sasl.jaas.config": (
                f'{LOGIN_MODULE} required username="broker" password="{BROKER_PASSWORD}";'
            ),
            "listener.name.between.ssl.keystore.type": "PEM",
            "listener.name.between.ssl.keystore.location": f"{self.folder}/broker.pem",
            "listener.name.between.ssl.truststore.type": "PEM",
            "listener.name.between.ssl.truststore.location": f"{self.folder}/root.pem",
            "connections.max.reauth.ms": str(REAUTH_MS),
            "default.replication.factor": str(replicas),
            "offsets.topic.replication.factor": str(replicas),
            "min.insync.replicas": str(max(1, replicas - 1)),
            "zookeeper.session.timeout.ms": "6000",
        }

    def add(self, replicas: int = 3, *, more: Mapping[str, str] | None = None) -> OdradekBroker:
        """Return a new broker, which is not started. `more`: further properties."""
        port, between = free_ports(2)
        properties = {**self.properties(port, between, replicas), **(more or {})}
        number = len(self.brokers) + 1
        broker = OdradekBroker(
            self.folder / str(number), zookeeper=self.root, properties=properties, broker_id=number, port=port
        )
        self.brokers.append(broker)
        self.between.append(between)
        return broker

    @property
    def bootstrap(self) -> str:
        """The addresses for clients."""
        return ",".join(f"localhost:{broker.port}" for broker in self.brokers)

    def stop(self) -> None:
        """Kill all brokers that `add` has returned."""
        for broker in self.brokers:
            broker.stop(kill=True)
