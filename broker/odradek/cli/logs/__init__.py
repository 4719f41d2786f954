"""`odradek log`: offline tools for log directories."""
