"""Threads that report new jobs as a database announces them: PostgreSQL notifications, SQLite's data version."""
