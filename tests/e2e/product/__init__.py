"""Tests the product as its users see it, with one installation and one cluster for all tests of this folder."""
