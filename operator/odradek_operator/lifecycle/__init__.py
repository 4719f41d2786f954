"""Decisions over time: which pods restart, which replicas move, which lost disks are released. All modules are pure."""
