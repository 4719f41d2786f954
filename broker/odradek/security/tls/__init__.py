"""TLS: private keys and certificates from Java's and PEM stores, settings, contexts, and the names of certificates."""
