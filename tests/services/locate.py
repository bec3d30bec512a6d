"""Where each service comes from: environment, standard port, private instance, installed programs, or nowhere."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Generic, TypeVar

from tests.services import debian, mariadb, postgres, rabbitmq, redis
from tests.services.processes import PrivateServer, find_program
from tests.services.server import Server

AnyServer = TypeVar("AnyServer", bound=Server)


class Source(Enum):
    ENVIRONMENT = "environment"
    RUNNING = "running"
    PRIVATE = "private"
    INSTALLED = "installed"
    MISSING = "missing"


class ServiceUnusable(RuntimeError):
    """An address that somebody asked for does not work; falling back would hide it."""


@dataclass(frozen=True)
class Service(Generic[AnyServer]):
    """One kind of server and how to get at it."""

    name: str
    server: type[AnyServer]
    instance: type[PrivateServer]
    standard_urls: Callable[[], list[str]]
    refusal: Callable[[str], str | None]
    packages: tuple[str, ...]

    @property
    def variable(self) -> str:
        return f"STAGEPOST_TEST_{self.name.upper()}_URL"

    @property
    def remedy(self) -> str:
        return f"`{debian.install_command(self.packages)}`, or set {self.variable}"


@dataclass(frozen=True)
class Programs:
    """Programs that tests run themselves, and files they need (patterns); `packages` has them all."""

    name: str
    programs: tuple[str, ...]
    packages: tuple[str, ...]
    files: tuple[str, ...] = ()

    @property
    def remedy(self) -> str:
        return f"`{debian.install_command(self.packages)}`"


@dataclass(frozen=True)
class Location:
    """Where a service is, or would be started; `detail` is for people."""

    source: Source
    detail: str
    url: str | None = None


POSTGRES = Service(
    name="postgres",
    server=postgres.PostgresServer,
    instance=postgres.PostgresInstance,
    standard_urls=postgres.standard_urls,
    refusal=postgres.refusal,
    packages=("postgresql",),
)
MARIADB = Service(
    name="mariadb",
    server=mariadb.MariadbServer,
    instance=mariadb.MariadbInstance,
    standard_urls=mariadb.standard_urls,
    refusal=mariadb.refusal,
    packages=("mariadb-server",),
)
REDIS = Service(
    name="redis",
    server=redis.RedisServer,
    instance=redis.RedisInstance,
    standard_urls=redis.standard_urls,
    refusal=redis.refusal,
    packages=("redis-server",),
)
RABBITMQ = Service(
    name="rabbitmq",
    server=rabbitmq.RabbitmqServer,
    instance=rabbitmq.RabbitmqInstance,
    standard_urls=rabbitmq.standard_urls,
    refusal=rabbitmq.refusal,
    packages=("rabbitmq-server",),
)
SPIN = Programs(
    name="spin",
    programs=("spin", "gcc"),
    packages=("spin", "gcc", "libc6-dev"),
)
LIBRABBITMQ = Programs(
    name="librabbitmq",
    programs=("gcc",),
    packages=("gcc", "libc6-dev", "librabbitmq-dev", "libcjson-dev"),
    files=("/usr/include/amqp.h", "/usr/include/cjson/cJSON.h"),
)
NODE = Programs(name="node", programs=("node", "npm"), packages=("nodejs", "npm"))
PGBOUNCER = Programs(name="pgbouncer", programs=("pgbouncer",), packages=("pgbouncer",))
FAKETIME = Programs(
    name="faketime",
    programs=(),
    packages=("faketime",),
    files=("/usr/lib/*/faketime/libfaketimeMT.so.1",),
)
SERVICES: tuple[Service[Any] | Programs, ...] = (
    POSTGRES,
    MARIADB,
    REDIS,
    RABBITMQ,
    SPIN,
    LIBRABBITMQ,
    NODE,
    PGBOUNCER,
    FAKETIME,
)


def locate(service: Service[Any] | Programs) -> Location:
    """Find a usable server or the programs, or say that a private one can be started, or why there is none."""
    return _locate_programs(service) if isinstance(service, Programs) else _locate_server(service)


def _locate_programs(wanted: Programs) -> Location:
    found = {name: find_program(name) for name in wanted.programs}
    found |= {pattern: next(iter(sorted(Path("/").glob(pattern.lstrip("/")))), None) for pattern in wanted.files}
    if missing := [name for name, path in found.items() if path is None]:
        return Location(Source.MISSING, f"{' and '.join(missing)} not installed")
    return Location(Source.INSTALLED, " and ".join(map(str, found.values())))


def _locate_server(service: Service[Any]) -> Location:
    if url := os.environ.get(service.variable):
        if reason := service.refusal(url):
            raise ServiceUnusable(f"{service.name}: {service.variable} is set but unusable: {reason}")
        return Location(Source.ENVIRONMENT, f"the server in {service.variable}", url)
    reasons = {url: service.refusal(url) for url in service.standard_urls()}
    for url, reason in reasons.items():
        if reason is None:
            return Location(Source.RUNNING, f"the server running at {_without_password(url)}", url)
    missing = service.instance.missing_program()
    if missing is None:
        return Location(Source.PRIVATE, "a private instance from installed programs")
    [first_reason, *_] = reasons.values()
    return Location(Source.MISSING, f"{missing} is not installed, and on the standard port: {first_reason}")


def open_server(service: Service[AnyServer], location: Location) -> AnyServer:
    """Use the located server, or start the private instance; the caller closes it."""
    if location.url is not None:
        return service.server(location.url, origin=location.detail)
    instance = service.instance()
    instance.__enter__()
    return service.server(instance.url, origin=f"{location.detail}, port {instance.port}", instance=instance)


def missing_is_failure() -> bool:
    """In continuous integration a skipped service would be an unnoticed hole."""
    return os.environ.get("CI", "").lower() in {"1", "true", "yes"}


def _without_password(url: str) -> str:
    return url.rpartition("@")[2]
