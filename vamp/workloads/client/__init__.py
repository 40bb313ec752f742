"""A closed-loop client for any OpenAI-compatible server, and a reader of the server's own metrics."""

from vamp.workloads.client.agreement import Agreement, agreement
from vamp.workloads.client.options import ClientOptions
from vamp.workloads.client.prometheus import Delta, Scrape, fetch_metrics
from vamp.workloads.client.records import ClientTurn, ReplayResult
from vamp.workloads.client.replayer import OnTurn, replay, replay_async

__all__ = [
    "Agreement",
    "ClientOptions",
    "ClientTurn",
    "Delta",
    "OnTurn",
    "ReplayResult",
    "Scrape",
    "agreement",
    "fetch_metrics",
    "replay",
    "replay_async",
]
