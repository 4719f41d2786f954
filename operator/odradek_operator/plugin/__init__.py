"""`kubectl odradek`: a plugin of kubectl for the resources of the operator."""
