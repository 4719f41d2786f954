"""Conversion of records between the formats, in both directions."""
