"""The application's own tables: tasks, segments and steps, on the app's connections."""
