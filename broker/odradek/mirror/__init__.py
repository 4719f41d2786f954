"""The mirror: copies topics of other clusters into one target cluster, each record once and in order."""
