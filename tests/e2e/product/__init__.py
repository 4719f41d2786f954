"""The product as its users meet it: one installation and one cluster for all tests of this folder."""
