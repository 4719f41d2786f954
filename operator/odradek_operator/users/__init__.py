"""Users in ZooKeeper: what a User resource changes there, in which order, and the record of what belongs to it."""
