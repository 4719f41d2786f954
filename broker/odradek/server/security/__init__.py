"""Authentication of clients: logins with SASL, and what listeners need of their security settings."""
