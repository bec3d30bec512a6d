"""One suite for every store operation, every database, both colours."""
