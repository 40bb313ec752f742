"""Both systems' results side by side, with the ratios that matter."""

from __future__ import annotations

from typing import Any

TOKENS = "tokens"
NOTHING = "tokens, nothing offloaded"
CONTROL = "tokens, nothing staged"
PADDED = "tokens, padded rows"
SOAK = "tokens, soak"


def summarize(plain: dict[str, Any], again: dict[str, Any], vamp: dict[str, Any]) -> dict[str, Any]:
    """`equal` is true if every answer of VAMP is plain vLLM's wherever two processes of plain vLLM agree, is VAMP's own
    with nothing offloaded everywhere, and the negative control differs. `steady` is false if device memory was lost.
    Phases that failed or did not run are left out and said so.
    """
    lines, rows = _equality(plain, again, vamp)
    compared = [row for row in rows if row["repeatable"] and row["phase"] != CONTROL]
    control = [row for row in rows if row["phase"] == CONTROL]
    equal = bool(rows) and all(row["equal"] for row in compared) and bool(control)
    equal = equal and not any(row["equal"] or row["equal_own"] for row in control)
    equal = equal and all(row["equal_own"] for row in rows if row["phase"] != CONTROL)
    ratios = [*_decode(plain, vamp), *_prefill(plain, vamp)]
    lines += [f"{row['what']}: {row['ms']:.2f} ms, {row['ratio']:.3f}x {row['over']}" for row in ratios]
    for move in _get(vamp, "growth pause").get("moves", []):
        lines.append(f"growth by {move['mib']:.0f} MiB: call {move['call_ms']:.2f} ms, pause {move['pause_ms']:.2f} ms")
    lines += [*_padded(vamp), *_soak(vamp)]
    for row in vamp["table 2"] if isinstance(vamp.get("table 2"), list) else []:
        lines.append(
            f"table 2, {row['ratio_pct']:g} %: reclaimed {row['reclaimed_gib']:.3f} GiB, "
            f"pool {row['pool_blk']} blocks, {row['pool_gib']:.3f} GiB"
        )
    for system, results in (("plain", plain), ("vamp", vamp)):
        for name, value in results.items():
            if isinstance(value, dict) and "error" in value:
                lines.append(f"{system}: {name}: not measured: {value['error']}")
    lines.append(f"answers {'equal' if equal else 'NOT equal'}; {len(compared)} compared with plain vLLM")
    steady = _get(vamp, SOAK).get("steady", True)
    return {"equal": equal, "steady": steady, "equality": rows, "ratios": ratios, "lines": lines}


def _get(results: dict[str, Any], name: str) -> dict[str, Any]:
    value = results.get(name)
    return value if isinstance(value, dict) and "error" not in value else {}


def _equality(
    plain: dict[str, Any], again: dict[str, Any], vamp: dict[str, Any]
) -> tuple[list[str], list[dict[str, Any]]]:
    first, second, own = _get(plain, TOKENS), _get(again, TOKENS), _get(vamp, NOTHING)
    lines, rows = [], []
    for name in (name for name in vamp if name.startswith(TOKENS)):
        results = _get(vamp, name)
        results = results.get("result", results)
        for n, answer in results.items():
            if n not in first:
                continue
            row = {
                "phase": name,
                "n": int(n),
                "repeatable": n in second and first[n]["tokens"] == second[n]["tokens"],
                "equal_own": n in own and answer["tokens"] == own[n]["tokens"],
                "equal": answer["tokens"] == first[n]["tokens"],
                "same_schedule": answer["scheduled"] == first[n]["scheduled"],
                "same_requests": sum(a == b for a, b in zip(answer["tokens"], first[n]["tokens"], strict=True)),
                "blocks": answer["blocks"],
                "distinct_tokens": len({token for one in answer["tokens"] for token in one}),
            }
            rows.append(row)
            verdict = "equal" if row["equal"] else "DIFFERENT"
            schedule = "same" if row["same_schedule"] else "differs"
            repeats = "repeats itself" if row["repeatable"] else "DOES NOT repeat itself in a second process"
            with_own = "equal" if row["equal_own"] else "DIFFERENT"
            lines.append(
                f"{name}, n = {n}: {verdict} ({row['same_requests']} of {n} requests), "
                f"to nothing offloaded {with_own}, schedule {schedule}, "
                f"{row['blocks']} blocks, plain {repeats}, {row['distinct_tokens']} distinct tokens"
            )
    return lines, rows


def _padded(vamp: dict[str, Any]) -> list[str]:
    found = _get(vamp, PADDED)
    rows = [(name, found[name]) for name in ("real", "all") if name in found]
    return [
        f"padded graph, n = {row['n']}, {name} rows: {row['experts_per_layer']:.1f} experts a layer, "
        f"{row['median_ms']:.2f} ms"
        for name, row in rows
    ]


def _soak(vamp: dict[str, Any]) -> list[str]:
    found = _get(vamp, SOAK)
    if not found:
        return []
    verdict = "steady" if found["steady"] else "NOT steady"
    return [f"soak: {found['increments']} increments, free memory varies by {found['varies_bytes']} B: {verdict}"]


def _decode(plain: dict[str, Any], vamp: dict[str, Any]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    base = {row["n"]: row["median_ms"] for row in _rows(plain, "decode")}
    per_s = _get(vamp, "costs").get("bulk_bytes_per_s")
    for row in _rows(vamp, "decode, nothing offloaded"):
        rows += _ratio(f"decode n = {row['n']}, nothing offloaded", row["median_ms"], base.get(row["n"]), "plain")
    for row in _rows(vamp, "decode, routed"):
        if row["n"] in base and per_s:
            floor = base[row["n"]] + row["step_bytes"] / per_s * 1e3
            what = f"decode n = {row['n']}, routed, {row['experts_per_layer']:.1f} experts a layer"
            rows += _ratio(what, row["median_ms"], floor, "(plain + bytes / bandwidth)")
    return rows


def _prefill(plain: dict[str, Any], vamp: dict[str, Any]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    base = {row["n_tok"]: row["median_ms"] for row in _rows(plain, "prefill")}
    costs = _get(vamp, "costs")
    for row in _rows(vamp, "prefill, nothing offloaded"):
        rows += _ratio(f"prefill {row['n_tok']}, nothing offloaded", row["median_ms"], base.get(row["n_tok"]), "plain")
    for mode in ("whole_region", "routed"):
        found = _get(vamp, f"prefill, {mode}")
        for row in found.get("result", []):
            if row["n_tok"] not in base or not costs:
                continue
            copy_ms = found["offloaded_bytes"] / costs["bulk_bytes_per_s"] * 1e3
            floor, what = max(base[row["n_tok"]], copy_ms), f"prefill {row['n_tok']}, {mode}"
            rows += _ratio(what, row["median_ms"], floor, f"max(plain, {copy_ms:.1f} ms of copies)")
    return rows


def _rows(results: dict[str, Any], name: str) -> list[dict[str, Any]]:
    value = results.get(name)
    return value if isinstance(value, list) else []


def _ratio(what: str, ms: float, base_ms: float | None, over: str) -> list[dict[str, Any]]:
    return [{"what": what, "ms": ms, "ratio": ms / base_ms, "over": over}] if base_ms else []
