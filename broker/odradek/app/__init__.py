"""Builds one broker process from its parts."""
