"""Offloaded experts are where kernels read them, with the bytes they had, whichever way they travel."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    import torch

    from vamp.calibrate.rig import Rig


def chosen(rig: Rig, layer: int, n: int, seed: int = 0) -> torch.Tensor:
    """n expert numbers as a router would choose, resident ones among them, repeats allowed."""
    import torch

    generator = torch.Generator("cuda").manual_seed(1000 * seed + layer)
    n_shards = rig.remapper.layout.plan.experts.n_shards
    return torch.randint(0, n_shards, (n, 1), generator=generator, device="cuda", dtype=torch.int32)


def layers(rig: Rig) -> range:
    return range(rig.remapper.layout.plan.experts.n_layers)


def grow(rig: Rig) -> None:
    rig.remap(rig.remapper.layout.plan.limit_groups)


def test_host_copies_are_the_experts(rig: Rig) -> None:
    experts = rig.remapper.layout.plan.experts
    assert rig.copier.weights.nbytes > 0
    for layer in layers(rig):
        first = rig.copier.kept_from(layer)
        for tensor in range(2) if first < experts.n_shards else ():
            kept = rig.copier.weights.shards(layer, tensor, first, experts.n_shards)
            assert kept.tobytes() == rig.expected(layer, tensor)[first:].cpu().numpy().tobytes()
    crc = rig.copier.checksum()
    grow(rig)
    rig.remap(0)
    assert rig.copier.checksum() == crc
    rig.copier.weights.shards(1, 0, experts.n_shards - 1, experts.n_shards)[7] ^= 1
    assert rig.copier.checksum() != crc


@pytest.mark.parametrize("n_ids", [1, 7, 40, 700])
def test_routed_staging_brings_what_was_selected(rig: Rig, n_ids: int) -> None:
    grow(rig)
    before = rig.routed.staged_shards()
    for layer in layers(rig):
        ids = chosen(rig, layer, n_ids)
        rig.routed.before_experts(layer, ids)
        selected = sorted(set(ids.flatten().tolist()))
        assert rig.shards_right(layer, selected)
        first = rig.remapper.offloaded(layer).first
        now = rig.routed.staged_shards()[layer]
        assert now - before[layer] == sum(shard >= first for shard in selected)


def test_routed_staging_brings_nothing_else(rig: Rig) -> None:
    grow(rig)
    shards = rig.remapper.offloaded(1)
    import torch

    only = torch.tensor([[shards.first]], device="cuda", dtype=torch.int32)
    rig.routed.before_experts(1, only)
    assert rig.shards_right(1, [shards.first])
    assert not rig.shards_right(1, [shards.first + 1])


@pytest.mark.parametrize("n_tok", [0, 1, 33, 40, 2**31 - 1])
def test_a_graph_stages_what_its_real_rows_chose(rig: Rig, n_tok: int) -> None:
    """Captured once for 40 tokens of 5 experts each, replayed with fewer tokens."""
    import torch

    grow(rig)
    ids = chosen(rig, 1, 200).view(40, 5)
    rig.routed.before_experts(1, ids)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        rig.routed.before_experts(1, ids)
    first = rig.remapper.offloaded(1).first
    rig.routed.forget_counts()
    rig.routed.stage_tokens(n_tok)
    graph.replay()
    selected = sorted(set(ids[:n_tok].flatten().tolist()))
    assert rig.routed.staged_shards()[1] == sum(shard >= first for shard in selected)
    assert rig.shards_right(1, selected)


def test_rows_that_do_not_count_stay_as_they_were(rig: Rig) -> None:
    import torch

    grow(rig)
    shards = rig.remapper.offloaded(1)
    ids = torch.tensor([[shards.first], [shards.first + 1]], device="cuda", dtype=torch.int32)
    rig.routed.stage_tokens(1)
    rig.routed.before_experts(1, ids)
    assert rig.shards_right(1, [shards.first])
    assert not rig.shards_right(1, [shards.first + 1])


def test_without_staging_it_is_noticed(rig: Rig) -> None:
    """The negative control: the same calls while staging is switched off."""
    grow(rig)
    rig.routed.stage_nothing()
    ids = chosen(rig, 1, 700)
    rig.routed.before_experts(1, ids)
    assert not rig.shards_right(1, sorted(set(ids.flatten().tolist())))
    rig.routed.follow_boundary()
    rig.routed.before_experts(1, ids)
    assert rig.shards_right(1, sorted(set(ids.flatten().tolist())))


def test_one_captured_graph_serves_every_boundary(rig: Rig) -> None:
    import torch

    plan = rig.remapper.layout.plan
    ids = chosen(rig, 1, 40)
    stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        rig.routed.before_experts(1, ids)
    torch.cuda.current_stream().wait_stream(stream)
    with torch.cuda.graph(graph):
        rig.routed.before_experts(1, ids)
    for seed, n_groups in enumerate((plan.limit_groups, 2, 0, plan.limit_groups // 2)):
        rig.remap(n_groups)
        ids.copy_(chosen(rig, 1, 40, seed))
        graph.replay()
        assert rig.shards_right(1, sorted(set(ids.flatten().tolist())))


def forward(rig: Rig, wait: bool = True) -> list[bool]:
    """What kernels read in each layer of a pass, with enough work that copies and kernels could overtake each other."""
    import torch

    rig.whole.begin_step()
    busy = torch.randn(2048, 2048, device="cuda")
    seen = []
    for layer in layers(rig):
        rig.whole.before_experts(layer, None)
        gate = rig.weights(layer, 0).clone()
        if wait:
            rig.whole.before_down(layer)
        down = rig.weights(layer, 1).clone()
        for _ in range(5):
            busy = busy @ busy * 1e-3
        again = rig.weights(layer, 0).clone()  # nobody may have overwritten it
        rig.whole.after_experts(layer)
        seen.append((gate, down, again))
    rig.whole.drain()
    return [
        torch.equal(gate, rig.expected(layer, 0))
        and torch.equal(down, rig.expected(layer, 1))
        and torch.equal(again, gate)
        for layer, (gate, down, again) in enumerate(seen)
    ]


def test_whole_regions_are_there_when_the_kernels_read_them(rig: Rig) -> None:
    plan = rig.remapper.layout.plan
    for n_groups in (plan.limit_groups, 1, plan.limit_groups // 2, 0, plan.limit_groups):
        rig.remap(n_groups)
        before = rig.copier.staged_bytes
        assert all(forward(rig))
        staged = sum(s.last - s.first for s in map(rig.remapper.offloaded, layers(rig)))
        assert rig.copier.staged_bytes - before == staged * plan.experts.shard_bytes


def test_whole_regions_without_copies_are_noticed(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """The negative control."""
    grow(rig)
    monkeypatch.setattr(rig.copier, "stage_tensor", lambda *_: 0)
    right = forward(rig)
    assert right[0] and not any(right[1:])


def test_both_ways_in_turn(rig: Rig) -> None:
    """Graph steps and others alternate: each overwrites buffers that the other filled."""
    grow(rig)
    for seed in range(3):
        assert all(forward(rig))
        for layer in layers(rig):
            ids = chosen(rig, layer, 40, seed)
            rig.routed.before_experts(layer, ids)
            assert rig.shards_right(layer, sorted(set(ids.flatten().tolist())))


def test_an_unannounced_pass_stages_what_it_needs(rig: Rig) -> None:
    grow(rig)
    ids = chosen(rig, 1, 40)
    rig.whole.before_experts(1, ids)
    rig.whole.after_experts(1)
    assert rig.shards_right(1, sorted(set(ids.flatten().tolist())))
