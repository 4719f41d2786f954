"""Mirrors: the file of `odradek mirror`, the Kubernetes objects of a Mirror, and its status."""
