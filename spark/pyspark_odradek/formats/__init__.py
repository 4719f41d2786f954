"""Typed values: JSON, Avro, CSV and text become columns through Arrow; what does not match is kept as bytes."""
