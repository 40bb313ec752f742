"""A closed-loop client for any OpenAI-compatible server, and a reader of the server's own metrics."""

from vamp.workloads.client.agreement import Agreement, agreement
from vamp.workloads.client.options import ClientOptions
from vamp.workloads.client.prometheus import Delta, Scrape, fetch_metrics
from vamp.workloads.client.records import ClientTurn, ReplayResult
from vamp.workloads.client.replayer import OnTurn, converse_async, replay, replay_async
from vamp.workloads.client.talks import AgentTalk, RecordedTalk, Talk

__all__ = [
    "AgentTalk",
    "Agreement",
    "ClientOptions",
    "ClientTurn",
    "Delta",
    "OnTurn",
    "RecordedTalk",
    "ReplayResult",
    "Scrape",
    "Talk",
    "agreement",
    "converse_async",
    "fetch_metrics",
    "replay",
    "replay_async",
]
