"""Shared code of the end-to-end tests: kubectl, helm, waiting, volumes, images, load, and diagnostics of failures."""
