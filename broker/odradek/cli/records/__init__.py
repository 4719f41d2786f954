"""`odradek produce` and `odradek consume`: how records are read from input, sent, read and printed."""
