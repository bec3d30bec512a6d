"""The `stagepost` command, run in this process and in others."""
