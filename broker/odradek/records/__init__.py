"""Record batches and old message sets: headers, builders, decoders, validation, conversions, numpy columns."""
