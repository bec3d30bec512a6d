"""Say where each service of the tests comes from; as root on Debian or Ubuntu, install what is missing."""

from __future__ import annotations

import argparse
import os
import sys

from tests.services import debian
from tests.services.locate import (
    SERVICES,
    Location,
    Service,
    ServiceUnusable,
    Source,
    locate,
    missing_is_failure,
)
from tests.services.server import Server


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.services", description=__doc__)
    parser.add_argument("--no-install", action="store_true", help="never install server packages")
    parser.add_argument("services", nargs="*", metavar="service", help="only this one")
    arguments = parser.parse_args()
    may_install = not (arguments.no_install or os.environ.get("STAGEPOST_TEST_NO_INSTALL"))
    wanted = [service for service in SERVICES if service.name in (arguments.services or [service.name])]
    found = [_report(service, may_install=may_install) for service in wanted]
    return 1 if missing_is_failure() and not all(found) else 0


def _report(service: Service[Server], *, may_install: bool) -> bool:
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
    return False


def _provide(service: Service[Server], *, may_install: bool) -> Location:
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
