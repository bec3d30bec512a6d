"""A worker that serves metrics and probes, and what a scraper reads from it."""

from __future__ import annotations

import re
import subprocess
import urllib.error
import urllib.request
from typing import NamedTuple

from prometheus_client.parser import text_string_to_metric_families

LIMIT = 120.0
Labels = frozenset[tuple[str, str]]


class Reply(NamedTuple):
    """What the endpoint answered."""

    status: int
    text: str
    content_type: str


def address_in_log(process: subprocess.Popen[str]) -> str:
    """Read the worker's log until it says where it serves; returns the URL."""
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line)
        if found := re.search(r"serving .* at (http://\S+)", line):
            return found[1]
    raise AssertionError(f"the worker ended without serving: {''.join(lines)}")


def get(url: str, *, accept: str = "") -> Reply:
    """Send one request, whatever its status."""
    request = urllib.request.Request(url, headers={"Accept": accept} if accept else {})  # noqa: S310 - http only
    try:
        with urllib.request.urlopen(request, timeout=LIMIT) as response:  # noqa: S310
            return Reply(response.status, response.read().decode(), response.headers["Content-Type"])
    except urllib.error.HTTPError as error:
        with error:
            return Reply(error.code, error.read().decode(), error.headers["Content-Type"])


def scrape(url: str) -> dict[tuple[str, Labels], float]:
    """Read metrics as Prometheus does: values by name and labels."""
    reply = get(url)
    assert reply.status == 200, reply.text
    families = text_string_to_metric_families(reply.text)
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in families
        for sample in family.samples
    }


def value(samples: dict[tuple[str, Labels], float], name: str, **labels: str) -> float | None:
    """Look up one sample."""
    return samples.get((name, frozenset(labels.items())))
