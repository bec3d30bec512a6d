"""Programs in other languages, which run remote tasks."""
