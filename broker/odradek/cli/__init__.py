"""The command line `odradek`."""
