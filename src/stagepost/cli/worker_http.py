"""What `stagepost worker --http` serves: metrics of the process and of the fleet, and probes."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from stagepost.database.store import Store
from stagepost.errors import ConfigurationError, StoreError
from stagepost.worker.http_endpoint import Answer, HttpAddress, HttpEndpoint, Route
from stagepost.worker.probes import Probes, Verdict
from stagepost.worker.worker import Worker

if TYPE_CHECKING:
    from prometheus_client.registry import Collector

__all__ = ["served"]

log = logging.getLogger(__name__)

CALL_SECONDS = 8.0
"""How long one read for a scrape may take; Prometheus waits 10 seconds by default."""
CONNECTIONS = 2
"""One for scrapes and one for probes, so that neither waits for the other."""


@contextlib.contextmanager
def served(worker: Worker, address: HttpAddress | None) -> Iterator[None]:
    """Serve metrics and probes of a worker during the body; nothing without an address."""
    if address is None:
        yield
        return
    with _store_of(worker) as store:
        endpoint = HttpEndpoint(address, routes_of(worker, store))
        endpoint.start()
        try:
            yield
        finally:
            endpoint.close()


@contextlib.contextmanager
def _store_of(worker: Worker) -> Iterator[Store]:
    """Open connections that fail soon, and that neither the worker nor its handlers use."""
    app = worker.app
    if app.store.database.is_memory:
        yield app.store
        return
    store = app.open_store(pool_size=CONNECTIONS)
    store.call_seconds, store.patience_seconds = CALL_SECONDS, 0.0
    try:
        yield store
    finally:
        store.abort()
        store.close()


def routes_of(worker: Worker, store: Store) -> dict[str, Route]:
    """Build the routes; without prometheus-client, those of the metrics say how to install it."""
    probes = Probes(worker, store)
    routes = {"/livez": partial(_probe, probes.live), "/readyz": partial(_probe, probes.ready)}
    try:
        from stagepost.metrics import FleetCollector, ProcessCollector  # noqa: PLC0415 - needs an extra
    except ConfigurationError as error:
        log.warning("/metrics is not available: %s", error)
        refusal = Answer.of_text(str(error), status=501)
        return {**routes, "/metrics": lambda _accept: refusal, "/metrics/fleet": lambda _accept: refusal}
    return {
        **routes,
        "/metrics": partial(_metrics, ProcessCollector(worker.app, worker)),
        "/metrics/fleet": OneAtATime(partial(_metrics, FleetCollector(worker.app, store))),
    }


class OneAtATime:
    """Refuses a request while another is being answered, so that a slow database cannot occupy every thread."""

    def __init__(self, route: Route) -> None:
        self._route = route
        self._lock = threading.Lock()

    def __call__(self, accept: str) -> Answer:
        if not self._lock.acquire(blocking=False):
            return Answer.of_text("Another request is reading the same metrics. Try again.", status=503)
        try:
            return self._route(accept)
        except StoreError:  # its text may name the server, and anyone who reaches the port reads this
            return Answer.of_text("The database does not answer.", status=503)
        finally:
            self._lock.release()


def _probe(ask: Callable[[], Verdict], _accept: str) -> Answer:
    verdict = ask()
    return Answer.of_text(verdict.text, status=200 if verdict.is_good else 503)


def _metrics(collector: Collector, accept: str) -> Answer:
    from stagepost.metrics import exposition_of  # noqa: PLC0415 - needs an extra

    body, content_type = exposition_of(collector, accept)
    return Answer(body, content_type=content_type)
