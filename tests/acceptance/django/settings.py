"""Settings of the project under test. The environment names the databases as JSON, because each run has others."""

from __future__ import annotations

import importlib.util
import json
import os
from typing import Any

from stagepost import RetryPolicy

if importlib.util.find_spec("MySQLdb") is None and importlib.util.find_spec("pymysql") is not None:
    import pymysql

    pymysql.install_as_MySQLdb()

SECRET_KEY = "only for tests"
USE_TZ = True
ROOT_URLCONF = "tests.acceptance.django.shop.urls"
INSTALLED_APPS = ["stagepost.contrib.django", "tests.acceptance.django.shop"]
DATABASES: dict[str, Any] = json.loads(os.environ["DJANGO_DATABASES"])
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
STAGEPOST: dict[str, Any] = json.loads(os.environ.get("DJANGO_STAGEPOST", "{}"))
AT_ONCE = RetryPolicy(max_attempts=3, first_delay=0, minimum_delay=0, jitter=0)
BACKEND = "stagepost.contrib.django.backend.StagepostBackend"
TASKS: dict[str, Any] = {
    "default": {"BACKEND": BACKEND, "QUEUES": ["default", "mail"]},
    "any_queue": {"BACKEND": BACKEND, "QUEUES": []},
    "process": {"BACKEND": BACKEND, "OPTIONS": {"pool": "process"}},
    "retrying": {"BACKEND": BACKEND, "OPTIONS": {"retry": AT_ONCE}},
}
