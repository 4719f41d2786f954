"""Certificate authorities, certificates and users of clusters."""
