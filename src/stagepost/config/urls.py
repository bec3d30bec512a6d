"""URLs of databases and brokers: how they are read and checked, and how they are shown without their secrets."""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from stagepost.errors import ConfigurationError

__all__ = [
    "BROKERS",
    "DATABASES",
    "broker_options",
    "check_url",
    "masked",
    "safe_cause",
    "split_url",
    "unreadable_url",
    "without_secrets",
]

DATABASES = {"sqlite": "sqlite:///file.db", "postgresql": "postgresql://…", "mysql": "mysql://…"}
"""The schemes of databases, each with an example."""
BROKERS = {"amqp": "amqp://…", "amqps": "amqps://…"}
ALIASES = {"postgres": "postgresql", "mariadb": "mysql"}
BROKER_OPTIONS = ("cafile", "certfile", "keyfile", "heartbeat")
LONGEST_HEARTBEAT_SECONDS = 3600
MASK = "***"
NAMED_SECRET = re.compile(
    r"((?:^|[?&;\s])[^=&?;\s]*(?:pass|pwd|secret|token|scram)[^=&?;\s]*\s*=\s*)('[^']*'|[^&\s]*)", re.IGNORECASE
)
"""An option of a URL, or of a libpq connection string, whose value must not be shown."""


def check_url(what: str, url: str, schemes: Mapping[str, str]) -> None:
    """Refuse a URL that no driver could read. The error shows none of its secrets."""
    *first, last = schemes.values()
    use = f"use {', '.join(first)} or {last}."
    scheme, separator, _ = url.partition("://")
    kind = scheme.partition("+")[0].lower()
    kind = ALIASES.get(kind, kind)
    if not separator:
        raise ConfigurationError(f"{what} is not a URL: {use}")
    if kind not in schemes:
        raise ConfigurationError(f"{what} begins with {scheme!r}: {use}")
    split_url(what, url, for_libpq=kind == "postgresql")


def broker_options(url: str) -> dict[str, str]:
    """Read the options of a broker's URL; raises ConfigurationError for one that is unknown or cannot work."""
    options = dict(parse_qsl(split_url("transport", url).query))
    if unknown := sorted(options.keys() - set(BROKER_OPTIONS)):
        valid = ", ".join(BROKER_OPTIONS)
        raise ConfigurationError(f"transport {masked(url)}: unknown option {unknown[0]!r}. Valid: {valid}.")
    heartbeat = options.get("heartbeat", "0")
    if not (heartbeat.isascii() and heartbeat.isdigit() and int(heartbeat) <= LONGEST_HEARTBEAT_SECONDS):
        raise ConfigurationError(
            f"transport {masked(url)}: heartbeat is {heartbeat!r}: it must be whole seconds from 0 (none) to "
            f"{LONGEST_HEARTBEAT_SECONDS}."
        )
    return options


def masked(url: str) -> str:
    """Replace a URL's secrets, so that it can be shown.

    A password that was not percent-encoded may contain any character. So everything up to the last `@` belongs to it,
    even if a little more than the password is replaced then.
    """
    scheme, separator, rest = url.partition("://")
    if not separator:
        scheme, rest = "", url
    credentials, at, address = rest.rpartition("@")
    user, colon, _ = credentials.partition(":")
    shown = f"{user}:{MASK}@{address}" if at and colon else rest
    return scheme + separator + NAMED_SECRET.sub(rf"\1{MASK}", shown)


def without_secrets(text: str, url: str) -> str:
    """Replace the secrets of a URL in the words of a driver or a server."""
    shown = masked(url)
    for secret in sorted(_secrets_of(url), key=len, reverse=True):
        if secret not in shown:  # otherwise it is the user's name, too, and masking it would only confuse
            text = text.replace(secret, MASK)
    return text


def safe_cause(error: BaseException, url: str) -> BaseException | None:
    """Return the error to raise another one from; None if a log of it would show a secret of the URL."""
    seen: BaseException | None = error
    while seen is not None:
        shown = f"{seen} {seen!r}"
        if without_secrets(shown, url) != shown:
            return None
        seen = seen.__cause__ or seen.__context__
    return error


def split_url(what: str, url: str, *, for_libpq: bool = False) -> SplitResult:
    """Split a URL into its parts. Its `what` is named in the error if it cannot be read.

    With `for_libpq`, it may name several hosts, and its password ends at the first `@`.
    """
    try:
        parts = urlsplit(url)
        if not (for_libpq and "," in parts.netloc):
            _ = parts.port  # raises ValueError if it is no number
    except ValueError:
        raise unreadable_url(what, url) from None
    has_slash = "@" in parts.path and "@" not in parts.netloc and ":" in parts.netloc
    if has_slash or (for_libpq and parts.netloc.count("@") > 1):
        raise unreadable_url(what, url)
    return parts


def unreadable_url(what: str, url: str, why: str = "") -> ConfigurationError:
    """Build the error for a URL that cannot be read; `why` is left out if it might quote a part of the password."""
    shown = masked(url)
    reason = f": {' '.join(why.split())}" if why and shown == url else ""
    return ConfigurationError(
        f"{what} {shown!r} cannot be read{reason}. Percent-encode the special characters of its user name and "
        f"password, for example with urllib.parse.quote(password, safe='')."
    )


def _secrets_of(url: str) -> set[str]:
    credentials = url.partition("://")[2].rpartition("@")[0] or url.rpartition("@")[0]
    found = {credentials.partition(":")[2], *(match[2].strip("'") for match in NAMED_SECRET.finditer(url))}
    found |= {unquote(secret) for secret in found}
    return {form for secret in found if secret for form in (secret, repr(secret)[1:-1])}
