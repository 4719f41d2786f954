"""The client properties of Kafka for TLS and SASL, as a base class of `ClientSettings`.

`security/client_security` has their meaning. A property that is not set is None.
"""

from __future__ import annotations

from dataclasses import dataclass

from odradek.base.ports import Clock
from odradek.base.setting_definitions import secret, settings_of, text
from odradek.security.client_security import ClientSecurity


@dataclass(frozen=True, slots=True, kw_only=True)
class SecurityFields:
    """Settings with which a client connects."""

    security_protocol: str = text("PLAINTEXT", "Protocol of connections: PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL")

    ssl_truststore_type: str | None = text(None, "Type of the truststore: PEM, PKCS12 or JKS, which is the default")
    ssl_truststore_location: str | None = text(
        None, "File with the authorities that are trusted. Default: those of the system"
    )
    ssl_truststore_password: str | None = secret("Password of the truststore")
    ssl_truststore_certificates: str | None = secret("The authorities as PEM text, instead of a file")
    ssl_keystore_type: str | None = text(None, "Type of the keystore: PEM, PKCS12 or JKS, which is the default")
    ssl_keystore_location: str | None = text(None, "File with the private key and certificate of the client")
    ssl_keystore_password: str | None = secret("Password of the keystore")
    ssl_keystore_key: str | None = secret("The private key as PEM text, instead of a file")
    ssl_keystore_certificate_chain: str | None = secret("The certificates of that key as PEM text")
    ssl_key_password: str | None = secret("Password of the private key")
    ssl_endpoint_identification_algorithm: str | None = text(
        None, "https: the certificate must be for the broker's host. Empty: that is not verified. Default: https"
    )
    ssl_protocol: str | None = text(None, "Highest version of TLS, without ssl.enabled.protocols. Default: TLSv1.3")
    ssl_enabled_protocols: str | None = text(None, "Versions of TLS. Default: TLSv1.2,TLSv1.3")
    ssl_cipher_suites: str | None = text(None, "Cipher suites, by their names in Java or OpenSSL")
    ssl_provider: str | None = text(None, "For Java only: must be empty")
    ssl_engine_factory_class: str | None = text(None, "For Java only: must be empty")
    ssl_keymanager_algorithm: str | None = text(None, "For Java only: must have Java's default")
    ssl_trustmanager_algorithm: str | None = text(None, "For Java only: must have Java's default")
    ssl_secure_random_implementation: str | None = text(None, "For Java only: must be empty")

    sasl_mechanism: str | None = text(
        None, "SASL mechanism: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER. SASL needs it"
    )
    sasl_jaas_config: str | None = secret("Login module and its options, such as username and password")
    sasl_oauthbearer_token_endpoint_url: str | None = text(
        None, "Address of the issuer's token endpoint, or file: and the path of a file with the token"
    )
    sasl_oauthbearer_header_urlencode: str | None = text(
        None, "Whether client id and secret are URL-encoded for the issuer. Default: false"
    )
    sasl_login_connect_timeout_ms: str | None = text(None, "Timeout for connecting to the issuer. Default: 10000")
    sasl_login_read_timeout_ms: str | None = text(None, "Timeout for an answer of the issuer. Default: 10000")
    sasl_client_callback_handler_class: str | None = text(None, "For Java only: must be empty")
    sasl_login_callback_handler_class: str | None = text(None, "For Java only: empty, or Kafka's for OAUTHBEARER")
    sasl_login_class: str | None = text(None, "For Java only: must be empty")

    def security(self, clock: Clock) -> ClientSecurity:
        """Return the security of the connections. No file is read. Raises `ConfigError`."""
        properties = {
            name: value
            for name, setting in settings_of(SecurityFields).items()
            if (value := getattr(self, setting.attribute)) is not None
        }
        return ClientSecurity.from_properties(properties, clock)
