"""The engine: drivers, pools, dialects, deadlines, migrations, and adapters for connections of callers."""

from stagepost.database.store import Store

__all__ = ["Store"]
