"""A broker process with listeners of every security protocol, and what clients need to connect to them."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from kazoo.client import KazooClient

from odradek.security.sasl.credentials import SHA_256, SHA_512, derive
from odradek.security.sasl.plain import LOGIN_MODULE
from odradek.security.sasl.scram import LOGIN_MODULE as SCRAM_MODULE
from odradek.testing.free_ports import free_ports
from odradek.zk.layout import ConfigChangeNotification, encode_config
from odradek_testkit.broker_process import OdradekBroker
from odradek_testkit.security.certificates import Authority, Issued, key_pem, pem

PASSWORD: Final = "a password = ;"
MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
REAUTH_MS: Final = 2_000
"""Time after which a client of the listener AGAIN must authenticate again."""


class SecuredBroker:
    """A broker with a listener of each security protocol, and what clients need."""

    def __init__(self, folder: Path, zookeeper: str) -> None:
        """`folder` gets keys and the data of the broker, and `zookeeper` is the connect string. Starts nothing yet."""
        self.folder = folder
        root = Authority.root("root")
        self.authorities = self._write("root.pem", pem(root.certificate))
        self.alice = self._identity(root.issue("alice", hosts=()), "alice")
        self._identity(root.issue("broker"), "broker")
        between, self.metrics_port, *free = free_ports(7)
        self.ports = dict(zip(("SSL", "MUTUAL", "SASL", "BOTH", "AGAIN"), free, strict=True))
        protocols = {
            "SSL": "SSL",
            "MUTUAL": "SSL",
            "SASL": "SASL_PLAINTEXT",
            "BOTH": "SASL_SSL",
            "AGAIN": "SASL_PLAINTEXT",
            "BETWEEN": "PLAINTEXT",
        }
        users = f'{LOGIN_MODULE} required user_alice="{PASSWORD}" user_bob="b";'
        addresses = {**self.ports, "BETWEEN": between}
        properties = {
            "listeners": ",".join(f"{name}://localhost:{port}" for name, port in addresses.items()),
            "listener.security.protocol.map": ",".join(f"{name}:{protocols[name]}" for name in addresses),
            "inter.broker.listener.name": "BETWEEN",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": f"{folder}/broker.pem",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": f"{folder}/root.pem",
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
            "listener.name.sasl.plain.sasl.jaas.config": users,
            "listener.name.both.plain.sasl.jaas.config": users,
            "listener.name.again.plain.sasl.jaas.config": users,
            "listener.name.again.connections.max.reauth.ms": str(REAUTH_MS),
            "metrics.port": str(self.metrics_port),
            "offsets.topic.replication.factor": "1",
            "listener.name.mutual.ssl.client.auth": "required",
            "listener.name.mutual.ssl.principal.mapping.rules": "RULE:^CN=([^,]*).*$/$1/U",
        }
        self.broker = OdradekBroker(folder / "broker", zookeeper=zookeeper, properties=properties, port=between)

    def _write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.write_text(text)
        return path

    def _identity(self, issued: Issued, name: str) -> Path:
        return self._write(f"{name}.pem", key_pem(issued.key) + issued.chain_pem)

    def address(self, listener: str) -> str:
        """The address of a listener."""
        return f"localhost:{self.ports[listener]}"

    def tls(self) -> list[str]:
        """Options of kcat for TLS."""
        return ["-X", "security.protocol=ssl", "-X", f"ssl.ca.location={self.authorities}"]

    def login(self, mechanism: str, user: str = "alice", password: str = PASSWORD, *, tls: bool = False) -> list[str]:
        """Options of kcat for SASL."""
        options = {"security.protocol": "sasl_ssl" if tls else "sasl_plaintext", "sasl.mechanism": mechanism}
        if tls:
            options["ssl.ca.location"] = str(self.authorities)
        options |= {"sasl.username": user, "sasl.password": password}
        return [each for name, value in options.items() for each in ("-X", f"{name}={value}")]

    def certificate(self) -> list[str]:
        """Options of kcat for the certificate of alice."""
        return ["-X", f"ssl.certificate.location={self.alice}", "-X", f"ssl.key.location={self.alice}"]

    def java_properties(self, listener: str, mechanism: str = "") -> dict[str, str]:
        """Client properties of Java for a listener; without a mechanism, with the certificate of alice."""
        properties = {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(self.authorities)}
        if not mechanism:
            key = {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(self.alice)}
            return {"security.protocol": "SSL", **properties, **key}
        module = LOGIN_MODULE if mechanism == "PLAIN" else SCRAM_MODULE
        return {
            "security.protocol": "SASL_SSL" if listener == "BOTH" else "SASL_PLAINTEXT",
            "sasl.mechanism": mechanism,
            "sasl.jaas.config": f'{module} required username="alice" password="{PASSWORD}";',
            **properties,
        }


def add_user(zookeeper: str, name: str, password: str) -> None:
    """Write the credentials of a user as `kafka-configs.sh` does."""
    values = {each.name: derive(password, each).to_text() for each in (SHA_256, SHA_512)}
    client = KazooClient(hosts=zookeeper)
    client.start()
    try:
        client.ensure_path("/config/users")
        client.create(f"/config/users/{name}", encode_config(values))
        client.create(
            "/config/changes/config_change_",
            ConfigChangeNotification(entity_path=f"users/{name}").encode(),
            sequence=True,
            makepath=True,
        )
    finally:
        client.stop()
        client.close()
