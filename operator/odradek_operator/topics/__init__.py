"""Topic resources: from resources and ZooKeeper state to actions, and their execution."""
