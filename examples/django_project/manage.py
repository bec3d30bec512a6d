"""Runs Django's commands, and Stagepost's: `python manage.py stagepost worker`."""

import os
import sys

from django.core.management import execute_from_command_line

if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "bookshop.settings")
    execute_from_command_line(sys.argv)
