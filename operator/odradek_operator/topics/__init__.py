"""Reconciliation of Topic resources: reads ZooKeeper, decides on actions, and executes them."""
