"""The Odradek operator: Cluster and Topic resources turned into ZooKeeper state and running brokers."""
