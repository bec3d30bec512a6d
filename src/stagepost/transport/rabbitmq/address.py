"""Converts a broker's URL to the driver's connection parameters."""

from __future__ import annotations

import logging
import ssl
from functools import cache
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from stagepost.config.urls import broker_options, split_url
from stagepost.errors import ConfigurationError

if TYPE_CHECKING:
    import pika

__all__ = ["driver", "parameters_of"]

CONNECT_SECONDS = 10.0
HEARTBEAT_SECONDS = 10
"""A peer that is silent for about two heartbeats counts as lost."""
PORTS = {"amqp": 5672, "amqps": 5671}


@cache
def driver() -> Any:
    """Import the driver, which is an optional dependency."""
    try:
        import pika  # noqa: PLC0415 - only those who use a broker need it
    except ImportError:
        raise ConfigurationError(
            "transport needs the package pika. Install it with: pip install 'stagepost[rabbitmq]'"
        ) from None
    chatter = logging.getLogger("pika")
    if chatter.level == logging.NOTSET:
        chatter.setLevel(logging.CRITICAL)  # it logs every step of every connection; we log what matters ourselves
    return pika


def parameters_of(url: str) -> pika.ConnectionParameters:
    """Convert amqp[s]://user:password@host:port/vhost to parameters with timeouts; TLS checks the server's name.

    `?cafile=`, `?certfile=` and `?keyfile=` name files for TLS; `?heartbeat=` is in seconds.
    """
    pika = driver()
    parts = split_url("transport", url)
    options = broker_options(url)
    host = parts.hostname or "localhost"
    user = unquote(parts.username or "guest")
    return pika.ConnectionParameters(
        host=host,
        port=parts.port or PORTS[parts.scheme],
        virtual_host=unquote(parts.path[1:]) or "/",
        credentials=pika.PlainCredentials(user, unquote(parts.password or "guest"), erase_on_connect=False),
        ssl_options=pika.SSLOptions(_tls(options), host) if parts.scheme == "amqps" else None,
        heartbeat=int(options.get("heartbeat", HEARTBEAT_SECONDS)),
        connection_attempts=1,
        socket_timeout=CONNECT_SECONDS,
        stack_timeout=CONNECT_SECONDS,
        blocked_connection_timeout=None,
        client_properties={"connection_name": "stagepost", "product": "Stagepost"},
    )


def _tls(options: dict[str, str]) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=options.get("cafile"))
    if "certfile" in options:
        context.load_cert_chain(options["certfile"], options.get("keyfile"))
    return context
