"""Runs inside pods: what `odradek-pod` does before and beside the process that the pod is for."""
