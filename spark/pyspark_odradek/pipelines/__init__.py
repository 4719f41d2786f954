"""Ready jobs: ordinary applications for `spark-submit`, each with `--help`."""
