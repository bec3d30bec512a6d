"""Settings for SQLite, or for PostgreSQL if DATABASE_URL is set."""

import os
from pathlib import Path
from urllib.parse import unquote, urlsplit

import django

FOLDER = Path(__file__).parents[1]


def database() -> dict[str, object]:
    """Read the address of a PostgreSQL database, or use a file."""
    url = urlsplit(os.environ.get("DATABASE_URL", ""))
    if url.scheme == "postgresql":
        return {
            "ENGINE": "django.db.backends.postgresql",
            "NAME": url.path[1:],
            "USER": unquote(url.username or ""),
            "PASSWORD": unquote(url.password or ""),
            "HOST": url.hostname or "",
            "PORT": url.port or "",
        }
    # IMMEDIATE: a transaction waits for its turn to write, instead of failing when it first writes.
    options = {"transaction_mode": "IMMEDIATE", "timeout": 20}
    return {"ENGINE": "django.db.backends.sqlite3", "NAME": FOLDER / "shop.sqlite3", "OPTIONS": options}


SECRET_KEY = "only for this example"  # noqa: S105
DEBUG = True
USE_TZ = True
ROOT_URLCONF = "bookshop.urls"
INSTALLED_APPS = ["stagepost.contrib.django", "orders"]
DATABASES = {"default": database()}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

MAIL = "django.core.mail.backends.console.EmailBackend"
if django.VERSION >= (6, 1):
    MAILERS = {"default": {"BACKEND": MAIL}}
else:
    EMAIL_BACKEND = MAIL

STAGEPOST = {"CONCURRENCY": 4}
TASKS = {"default": {"BACKEND": "stagepost.contrib.django.backend.StagepostBackend"}}
