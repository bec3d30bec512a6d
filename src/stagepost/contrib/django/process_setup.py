"""Sets Django up in a process for `pool="process"` tasks."""

import django
from django.apps import apps

__all__ = ["set_up"]


def set_up() -> None:
    """Set Django up, unless it is."""
    if not apps.ready:
        django.setup()
