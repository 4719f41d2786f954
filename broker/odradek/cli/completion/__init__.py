"""`odradek completion`: the script for a shell, and the names that it completes."""
