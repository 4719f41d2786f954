"""Record batches of format 2: headers, builders, decoders, checks before an append, numpy columns."""
