"""The shape that every background loop has."""
