"""Fixtures for tests of applications and of Odradek: an in-process broker, real clusters and in-memory ZooKeeper."""
