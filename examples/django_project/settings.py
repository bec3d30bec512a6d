"""The least settings that Django runs with."""

SECRET_KEY = "only for this example"  # noqa: S105
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "django.db"}}
INSTALLED_APPS: list[str] = []
USE_TZ = True
