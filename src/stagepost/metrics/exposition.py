"""Writes metrics in the format that a scraper accepts: Prometheus text or OpenMetrics."""

from __future__ import annotations

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

__all__ = ["exposition_of"]


def exposition_of(collector: Collector, accept: str = "") -> tuple[bytes, str]:
    """Collect the metrics; returns them and their content type, chosen by the header Accept."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(collector)
    encode, content_type = choose_encoder(accept)
    return encode(registry), content_type
