"""Sockets: frames in, responses in order, connection limits, and outgoing channels."""
