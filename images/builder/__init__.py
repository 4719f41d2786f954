"""Builds container images with docker, podman or buildah. `images/build.py` calls it."""
