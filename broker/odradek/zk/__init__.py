"""ZooKeeper: the layout of Kafka's znodes, an asynchronous client, and what a broker registers there."""
