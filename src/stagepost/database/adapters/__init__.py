"""Adapters for connections of callers, one file for each family of drivers."""
