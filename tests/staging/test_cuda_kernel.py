"""The routed-staging kernel by Triton's interpreter. Needs no device: what the hardware does is in tests/gpu."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed")

PROGRAM = """
import sys
import torch
from vamp.staging.cuda import kernel

E, KEPT, GATE, DOWN = 20, 8, 2 * kernel.BLOCK_WORDS + 512, kernel.BLOCK_WORDS
ALL = 2**31 - 1
broken, all_rows = (sys.argv[1:] == [name] for name in ("broken", "all rows"))
for n_ids, top_k, n_tok, first in (
    (10, 1, ALL, 12), (50, 10, ALL, 8), (100, 10, ALL, 20), (3, 3, 1, 12), (33, 1, 33, 19), (1, 1, ALL, 8),
    (50, 10, 4, 8), (120, 3, 11, 12), (50, 5, 0, 8),
):
    torch.manual_seed(n_ids)
    host = [torch.randint(-9, 9, (E - KEPT, n)) for n in (GATE, DOWN)]
    device = [torch.full((E, n), 99) for n in (GATE, DOWN)]
    ids = torch.randint(-1, E, (n_ids,), dtype=torch.int32)
    state = torch.tensor([first, 0, 0, 0], dtype=torch.int32)
    rows = torch.tensor([ALL if all_rows else n_tok], dtype=torch.int32)
    kernel.stage_selected[(kernel.PROGRAMS,)](
        ids, n_ids, top_k, rows, state, host[0].data_ptr(), device[0][KEPT].data_ptr(), host[1].data_ptr(),
        device[1][KEPT].data_ptr(), KEPT_FROM=KEPT, N_EXPERTS=E, SLOTS=16, GATE_WORDS=GATE, DOWN_WORDS=DOWN,
        IDS=kernel.IDS, BLOCK=kernel.BLOCK_WORDS, num_warps=kernel.WARPS,
    )
    selected = {int(i) for i in ids[: n_tok * top_k] if i >= first}
    if broken:
        selected = set(range(first, E)) - selected
    for expert in range(E):
        for was, now in zip(host, device, strict=True):
            copied = torch.equal(now[expert], was[expert - KEPT])
            assert copied == (expert in selected) and (copied or bool((now[expert] == 99).all())), (first, expert)
    assert state.tolist() == [first, len(selected), int(first < E), 0]
"""


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "TRITON_INTERPRET": "1"}
    command = [sys.executable, "-c", PROGRAM, *arguments]
    return subprocess.run(command, cwd=Path(__file__).parents[2], env=env, capture_output=True, text=True, timeout=300)


def test_it_copies_the_selected_offloaded_experts_and_no_others() -> None:
    done = run()
    assert done.returncode == 0, done.stderr


def test_the_comparison_can_fail() -> None:
    assert "AssertionError" in run("broken").stderr


def test_rows_that_do_not_count_are_noticed_when_staged() -> None:
    assert "AssertionError" in run("all rows").stderr
