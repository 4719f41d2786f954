"""Apache Kafka beside our brokers: its jars and tools, its logs, the commands of guides, and a load for both."""
