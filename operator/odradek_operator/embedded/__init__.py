"""The embedded cluster: the operator core over local processes instead of pods."""
