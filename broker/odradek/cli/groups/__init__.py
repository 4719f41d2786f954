"""`odradek group`: consumer groups, their committed offsets and their lag."""
