"""ZooKeeper server processes: Java, health and metrics. Used by pods and by `odradek up`."""
