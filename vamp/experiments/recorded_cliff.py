"""Sessions that outgrew a real GPU's pool (data/recorded/*.json, made by tools.gpu.cliff), read, with their specs."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pandas as pd

from vamp.errors import ConfigError
from vamp.experiments.spec import RunSpec, make_spec
from vamp.measure.records import RequestRecord, RunResult
from vamp.paths import data_dir

_BATCHED_TOK = 8192
"""As vamp.calibrate.engine has it. Admission and asynchronous scheduling are vLLM 0.26.0's defaults there."""


@dataclass(frozen=True, slots=True)
class RecordedRun:
    """One run on a GPU.

    Attributes:
        spec: the same run for `sim`, without noise.
        requests: columns of `RequestRecord`, seconds since the first was sent.
        facts: counts that do not depend on speed: steps, pool_blk, preemptions, offloads, evictions.
    """

    spec: RunSpec
    requests: pd.DataFrame
    facts: dict[str, int]

    @property
    def label(self) -> str:
        return f"{self.spec.system}, {self.spec.workload.concurrency} sessions"


def load_cliff(name: str, platform: str) -> list[RecordedRun]:
    """All runs of data/recorded/<name>.json.

    Raises:
        ConfigError: no such file, or it has another form.
    """
    path = data_dir() / "recorded" / f"{name}.json"
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        return [_run(found["settings"], row, platform) for row in found["runs"]]
    except (OSError, ValueError, KeyError, TypeError) as err:
        known = ", ".join(sorted(p.stem for p in path.parent.glob("*_cliff.json")))
        raise ConfigError(f"data/recorded/{name}.json is no recording of sessions ({err!r}); known: {known}") from None


def _run(settings: dict[str, Any], row: dict[str, Any], platform: str) -> RecordedRun:
    workload = {
        "kind": "inhouse",
        "concurrency": row["sessions"],
        "first_tok": settings["first_tok"],
        "growth_tok": settings["growth_tok"] + settings["output_tok"],
        "output_tok": settings["output_tok"],
        "turns": settings["turns"],
    }
    spec = make_spec(
        platform=platform,
        ratio_pct=settings["ratio_pct"] if row["system"] == "vamp" else 0.0,
        seed=row["sessions"],
        workload=workload,
        reserve_full_isl=True,
        max_num_batched_tokens=_BATCHED_TOK,
        staging=settings["staging"],
        cost=settings["cost"],
        step_time={"noise_sd": 0.0},
    )
    return RecordedRun(spec, RunResult.requests_frame(_records(row["requests"])), _facts(row))


def _records(rows: list[dict[str, Any]]) -> list[RequestRecord]:
    start_s = min(row["sent_s"] for row in rows)
    return [
        RequestRecord(
            session_id=f"c{row['session']:03d}",
            turn=row["turn"],
            prompt_tok=row["prompt_tok"],
            output_tok=row["output_tok"],
            arrival_s=row["sent_s"] - start_s,
            scheduled_s=row["first_s"] - start_s,  # not recorded: no later than this
            first_token_s=row["first_s"] - start_s,
            finish_s=row["end_s"] - start_s,
            cached_tok=row["cached_tok"],
        )
        for row in rows
    ]


def _facts(row: dict[str, Any]) -> dict[str, int]:
    return {
        "steps": row["steps"],
        "pool_blk": row["pool_blk"],
        "preemptions": row["preemptions"],
        "offloads": row.get("decided_offload", 0) + row.get("decided_offload_evict", 0),
        "evictions": row.get("decided_evict", 0),
    }
