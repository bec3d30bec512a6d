"""Sets Django up in a process for `pool="process"` tasks, which imports this module before the task's own."""

import django
from django.apps import apps

__all__: list[str] = []

if not apps.ready:
    django.setup()
