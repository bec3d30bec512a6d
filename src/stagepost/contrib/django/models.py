"""No models: Stagepost reads its tables itself. Django sends `post_migrate` only to apps that have this module."""

__all__: list[str] = []
