"""The controller: elects leaders, follows brokers and topics through ZooKeeper, and tells every broker."""
