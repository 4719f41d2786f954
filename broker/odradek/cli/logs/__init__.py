"""`odradek log`: the offline tools for log directories."""
