"""Runs the checks and tests in pieces, several at once, for `./dev test` and `./dev prove`."""
