"""The loops that keep promises; never user code."""
