"""Builds container images with whichever of docker, podman and buildah is there. Called by `images/build.py`."""
