"""Fixtures for tests of applications and of Odradek: a broker in the test process, real clusters, ZooKeeper in
memory."""
