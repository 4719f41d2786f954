"""Certificates, and other things that tests of security need."""
