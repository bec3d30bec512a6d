"""Django's migrations of Stagepost's tables: one for each of Stagepost's own."""
