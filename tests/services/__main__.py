"""Say where each service of the tests comes from; as root on Debian or Ubuntu, install what is missing."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import Any

from tests.services import debian
from tests.services.locate import (
    SERVICES,
    Location,
    Programs,
    Service,
    ServiceUnusable,
    Source,
    locate,
    missing_is_failure,
)

BY_NAME = {service.name: service for service in SERVICES}


def main(arguments: Sequence[str] | None = None) -> int:
    """Return the exit code: a missing service is a failure in CI, an unusable address always."""
    parser = argparse.ArgumentParser(prog="python -m tests.services", description=__doc__)
    parser.add_argument("--no-install", action="store_true", help="never install packages")
    parser.add_argument("names", nargs="*", metavar="service", help=f"one of {', '.join(BY_NAME)}; all if none")
    options = parser.parse_args(arguments)
    if unknown := [name for name in options.names if name not in BY_NAME]:
        parser.error(f"no such service: {', '.join(unknown)}")
    may_install = not (options.no_install or os.environ.get("STAGEPOST_TEST_NO_INSTALL"))
    results = [report(BY_NAME[name], may_install=may_install) for name in options.names or BY_NAME]
    return 0 if all(results) else 1


def report(service: Service[Any] | Programs, *, may_install: bool) -> bool:
    """Say where the service comes from; False if the run should fail for lack of it."""
    try:
        location = _provide(service, may_install=may_install)
    except ServiceUnusable as error:
        _say(str(error))
        return False
    if location.source is not Source.MISSING:
        _say(f"{service.name}: {location.detail}")
        return True
    consequence = "FAILED" if missing_is_failure() else "its tests will be SKIPPED"
    _say(f"{service.name}: {consequence}: {location.detail}. To fix it: {service.remedy}")
    return not missing_is_failure()


def _provide(service: Service[Any] | Programs, *, may_install: bool) -> Location:
    location = locate(service)
    if location.source is not Source.MISSING or not (may_install and debian.can_install()):
        return location
    _say(f"{service.name}: {location.detail}. Running: {debian.install_command(service.packages)}")
    if complaint := debian.install(service.packages):
        _say(f"{service.name}: apt-get failed: {complaint}")
    return locate(service)


def _say(text: str) -> None:
    sys.stderr.write(f"services: {text}\n")


if __name__ == "__main__":
    sys.exit(main())
