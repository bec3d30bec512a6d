"""Stagepost in a Django project: add `stagepost.contrib.django` to `INSTALLED_APPS`.

from stagepost.contrib.django import app

@app.task
def send_receipt(order_id: int) -> None: ...
"""

from stagepost.contrib.django.app import DjangoApp

__all__ = ["DjangoApp", "app"]

app = DjangoApp()
"""The project's app. It reads Django's settings when it is first used, so `tasks.py` can be imported at any time."""
