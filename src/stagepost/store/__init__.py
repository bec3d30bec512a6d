"""All SQL and nothing else: operations, dialects, connections."""

from stagepost.store.store import Store

__all__ = ["Store"]
