"""Collectors for the package prometheus-client: what this process did, and what the database knows of all workers.

`stagepost worker --http` serves both. Register a `ProcessCollector` in the registry of a web application to count what
it enqueues.
"""

from stagepost.errors import ConfigurationError

try:
    import prometheus_client as _prometheus_client  # noqa: F401 - only to see whether it is installed
except ImportError as error:
    raise ConfigurationError(
        "metrics need the package prometheus-client. Install it with: pip install 'stagepost[metrics]'"
    ) from error

from stagepost.metrics.exposition import exposition_of
from stagepost.metrics.fleet import FleetCollector
from stagepost.metrics.process import ProcessCollector

__all__ = ["FleetCollector", "ProcessCollector", "exposition_of"]
