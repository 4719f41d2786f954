"""The controller: elects leaders, watches brokers and topics in ZooKeeper, and informs all brokers of changes."""
