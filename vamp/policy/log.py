"""One record per decision, as a dict and as a line of JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, TextIO

from vamp.policy.plan import Decision, Situation


def decision_record(
    *,
    step: int,
    t_s: float,
    request_id: str,
    phase: str,
    situation: Situation,
    decision: Decision,
    pool_before_blk: int,
    pool_after_blk: int,
) -> dict[str, Any]:
    """The four costs and their inputs, the choice, the pool before and after. `phase` is "running" or "waiting"."""
    return {
        "step": step,
        "t_s": round(t_s, 6),
        "request_id": request_id,
        "phase": phase,
        "gap_blk": situation.gap_blk,
        "must_grow_blk": situation.must_grow_blk,
        "C_c_us": decision.evict_us,
        "C_e_us": decision.offload_us,
        "C_p_us": decision.preempt_us,
        "C_b_us": decision.offload_evict_us,
        "feasible": [plan.value for plan, us in decision.costs_us.items() if us is not None],
        "choice": decision.choice.value if decision.choice else None,
        "evict_blk": decision.evict_blk,
        "p_eff": decision.p_eff,
        "r_hit": situation.r_hit,
        "ages_steps": list(situation.ages_steps),
        "n_cand_shards": decision.n_cand_shards,
        "w_steps": situation.w_steps,
        "t_queue_us": situation.t_queue_us,
        "victims_partial_tok": list(situation.victims_partial_tok),
        "groups_before": situation.groups,
        "groups_after": decision.groups_after,
        "pool_before_blk": pool_before_blk,
        "pool_after_blk": pool_after_blk,
    }


class DecisionLog:
    """Keeps records in memory, writes them as JSONL, or both."""

    def __init__(self, path: str | None = None, *, keep: bool = False) -> None:
        self.records: list[dict[str, Any]] = []
        self._keep = keep
        self._file: TextIO | None = None
        if path:
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            self._file = Path(path).open("a", encoding="utf-8", buffering=1)  # noqa: SIM115  # lives as long as the log

    def add(self, record: dict[str, Any]) -> None:
        if self._keep:
            self.records.append(record)
        if self._file:
            self._file.write(json.dumps(record, separators=(",", ":")) + "\n")

    @property
    def active(self) -> bool:
        return self._keep or self._file is not None

    def close(self) -> None:
        if self._file:
            self._file.close()
            self._file = None
