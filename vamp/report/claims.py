"""The paper's claims C1 to C11, and what the values that decide them add up to (artifact/claims.yaml)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated

import yaml
from pydantic import Field, ValidationError

from vamp.config import Frozen, explain
from vamp.errors import ClaimError
from vamp.paths import root
from vamp.report.values import matching_ids
from vamp.report.verdicts import Verdict


class Claim(Frozen):
    """One claim.

    Attributes:
        decides: value ids whose verdicts decide it.
        supports: patterns of further ids that belong to it; shown, not counted.
        notebooks: stems of the notebooks that measure it; empty where none does yet.
    """

    id: Annotated[str, Field(pattern=r"^C\d+$")]
    text: str
    experiments: tuple[str, ...]
    decides: Annotated[tuple[str, ...], Field(min_length=1)]
    supports: tuple[str, ...] = ()
    notebooks: tuple[str, ...] = ()


class _File(Frozen):
    claims: tuple[Claim, ...]


@dataclass(frozen=True, slots=True)
class ClaimVerdict:
    """`ran` of `total` deciding values have a verdict; `missed` names those that count against the claim."""

    claim: Claim
    verdict: Verdict
    ran: int
    total: int
    missed: tuple[str, ...]


@cache
def _load(path: Path) -> tuple[Claim, ...]:
    try:
        claims = _File.model_validate(yaml.safe_load(path.read_text(encoding="utf-8"))).claims
    except ValidationError as err:
        raise ClaimError(explain(err, path.name)) from None
    for claim in claims:
        matching_ids(*claim.decides, *claim.supports)
    return claims


def load_claims() -> tuple[Claim, ...]:
    """All claims.

    Raises:
        ClaimError: the file is malformed or names an unknown value id.
    """
    return _load(root() / "artifact" / "claims.yaml")


def claim_verdict(claim: Claim, verdicts: Mapping[str, Verdict]) -> ClaimVerdict:
    """One miss makes a miss, one deciding value that did not run leaves it open; else the weakest counts."""
    told = {i: verdicts[i] for i in claim.decides if verdicts.get(i, "not_run") not in ("not_run", "cited")}
    missed = tuple(i for i, verdict in told.items() if verdict == "miss")
    verdict: Verdict
    if missed:
        verdict = "miss"
    elif len(told) < len(claim.decides):
        verdict = "not_run"
    else:
        verdict = "trend" if "trend" in told.values() else "match"
    return ClaimVerdict(claim, verdict, len(told), len(claim.decides), missed)


def claim_verdicts(verdicts: Mapping[str, Verdict], notebook: str | None = None) -> list[ClaimVerdict]:
    """All claims, or those that one notebook measures."""
    chosen: Iterable[Claim] = load_claims()
    if notebook is not None:
        chosen = [c for c in chosen if notebook in c.notebooks]
    return [claim_verdict(c, verdicts) for c in chosen]
