"""The fault run: a real cluster under load, hurt at random, measured, and looked through afterwards."""
