"""Record batches and old message sets in memory.

`formats` reads entries of every format, `v2` is the current format and `legacy` the two older ones. `checks` validates
what goes into a log, `conversion` converts between formats, `admission` does both for an append by a leader. `columns`
decodes batches into numpy columns.
"""
