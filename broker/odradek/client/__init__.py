"""The client library: producer, consumer, admin and a facade for threads (docs/design/0002-client.md)."""
