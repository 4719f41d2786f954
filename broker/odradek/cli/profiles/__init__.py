"""`odradek profile`: named client settings, which `--profile` uses."""
