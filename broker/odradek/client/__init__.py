"""The client library: producer, consumer, admin client, and a blocking client for threads
(docs/design/0002-client.md)."""
