"""Do client and server tell the same story of one run?"""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from vamp.errors import RunError
from vamp.measure import latency
from vamp.workloads.client.prometheus import TPOT, TTFT, Delta


@dataclass(frozen=True, slots=True)
class Agreement:
    """Means of one run by both clocks. TPOT is over requests with at least two output tokens."""

    ttft_client_s: float
    ttft_server_s: float
    tpot_client_s: float
    tpot_server_s: float

    @property
    def ttft_gap_pct(self) -> float:
        """Client above server, percent of the server's."""
        return 100.0 * (self.ttft_client_s / self.ttft_server_s - 1)

    @property
    def tpot_gap_pct(self) -> float:
        return 100.0 * (self.tpot_client_s / self.tpot_server_s - 1)


def agreement(requests: pd.DataFrame, delta: Delta, *, ttft: str = TTFT, tpot: str = TPOT) -> Agreement:
    """Compare `ReplayResult.frame` with the server's histograms over the same run.

    vLLM observes a TPOT of 0 for a reply of one token; those observations are taken out of its mean.

    Raises: RunError if the two did not see the same requests: some failed, somebody else used the server, or there is
        no request of two tokens.
    """
    done = latency.finished(requests)
    n_single = int((done["output_tok"] == 1).sum())
    if len(done) == n_single:
        raise RunError("no finished request with two or more output tokens; there is no TPOT to compare")
    for name in (ttft, tpot):
        seen = delta.histogram_count(name)
        if seen != len(requests) or len(done) != len(requests):
            raise RunError(
                f"{name} has {seen:g} requests, the client sent {len(requests)} of which {len(done)} finished; "
                "compare a run without failures on a server that nobody else uses"
            )
    return Agreement(
        ttft_client_s=latency.mean(latency.ttft_s(requests)),
        ttft_server_s=delta.histogram_mean(ttft),
        tpot_client_s=latency.mean(latency.tpot_ms(requests)) / 1e3,
        tpot_server_s=delta.histogram_sum(tpot) / (len(done) - n_single),
    )
