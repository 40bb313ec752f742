"""Profiles: written whole, read back, fitted, and simulated; what is wrong is said in one line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from vamp.calibrate.calls import host_copies, memfd_calls
from vamp.calibrate.coefficients import fitted
from vamp.calibrate.profile import Copy, Model, Profile, Remap, Step, load, spread, write
from vamp.calibrate.run import calibrate, step
from vamp.calibrate.steps import Seen, _mixed
from vamp.errors import ConfigError
from vamp.experiments.parameters import platform_for
from vamp.experiments.spec import make_spec
from vamp.experiments.store import canonical, pinned
from vamp.sim.platforms import load_platform
from vamp.sim.step_time import StepLoad

RANK = load_platform("h200_tp2_rank").step_model()


def row(load: StepLoad, groups: int = 0, staging: Any = "") -> Step:
    """A step that takes as long as the rank platform says."""
    found = RANK.step(load, groups, staging or "auto")
    staged = found.exposed_staging_s * RANK.routed_gbps * 1e9 if staging == "routed" else 0.0
    return Step(
        kind="mixed" if load.prefill_tok else "decode",
        prefill_tok=load.prefill_tok,
        decode_seqs=load.decode_seqs,
        context_tok=load.context_tok,
        pairs=load.attended_pairs,
        groups=groups,
        staging=staging,
        staged_bytes=staged,
        ms=spread([found.total_s * 1e3]),
    )


def made_profile() -> Profile:
    decode = [StepLoad(0, n, 512 * n) for n in (1, 4, 8, 16, 32, 64)]
    shapes = [(1088, 0), (2176, 0), (4352, 0), (8160, 24_480), (8160, 48_960)]
    prompts = [StepLoad(n, 4, n + c + 2048, n * (c + n // 2)) for n, c in shapes]
    groups = RANK.experts.max_groups(15)
    return Profile(
        device="made up",
        device_gib=139.8,
        environment={},
        recorded="2026-12-01",
        copies=(Copy(direction="h2d", way="engine", nbytes=2**27, gb_per_s=spread([54.4, 54.4])),),
        remaps=(Remap(groups=76, pages=228, grow_ms=spread([22.8]), restore_ms=spread([25.0])),),
        model=Model(
            folder="qwen3-next-tp2-rank",
            pool_blk=1288,
            max_num_seqs=64,
            max_num_batched_tokens=8192,
            graph_tok=128,
            load_format="dummy",
            top_k=10,
            n_experts=512,
        ),
        steps=(*map(row, decode), *map(row, prompts), *(row(d, groups, "routed") for d in decode)),
    )


def test_the_fit_finds_what_made_the_steps(tmp_path: Path) -> None:
    write(fitted(made_profile()), tmp_path / "host.json")
    platform = load_platform(str(tmp_path / "host.json"))
    want = load_platform("h200_tp2_rank")
    assert platform.base_blk == want.base_blk == 1288 and platform.kv == want.kv
    for name in ("step_ms", "expert_read_ms", "launch_ms", "h2d_gbps", "routed_gbps", "graph_tok"):
        assert getattr(platform.step_time, name) == pytest.approx(getattr(want.step_time, name), rel=0.02), name
    for one in (StepLoad(0, 24, 512 * 24), StepLoad(3000, 28, 60_000), StepLoad(8160, 0, 8160, 8160 * 30_000)):
        mine, theirs = (p.step_model().step(one, 400, "auto").total_s for p in (platform, want))
        assert mine == pytest.approx(theirs, rel=0.05)


def test_a_profile_without_a_fit_is_fitted_when_read(tmp_path: Path) -> None:
    write(made_profile(), tmp_path / "bare.json")
    write(fitted(made_profile()), tmp_path / "full.json")
    bare, full = (load_platform(str(tmp_path / f"{name}.json")).step_time for name in ("bare", "full"))
    assert bare == full


def test_an_edited_profile_is_another_run(tmp_path: Path) -> None:
    path = tmp_path / "host.json"
    write(fitted(made_profile()), path)
    spec = make_spec(platform=platform_for("sim", str(path), ""), workload={"kind": "inhouse", "concurrency": 2})
    first = canonical(pinned(spec))
    assert first["platform"] == "host.json" and first["platform_sha256"]
    write(made_profile(), path)
    assert canonical(pinned(spec)) != first
    plain = make_spec(workload={"kind": "inhouse", "concurrency": 2})
    assert pinned(plain) is plain


@pytest.mark.parametrize("text", ["{}", "nothing", '{"version": 2}'])
def test_what_is_no_profile_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "bad.json").write_text(text)
    with pytest.raises(ConfigError, match=r"bad\.json is no calibration of version 1"):
        load(tmp_path / "bad.json")
    with pytest.raises(ConfigError, match="cannot be read"):
        load(tmp_path / "none.json")


def test_a_profile_without_steps_is_no_platform(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    write(made_profile().model_copy(update={"model": None, "failures": {"model steps": "timeout"}}), path)
    with pytest.raises(ConfigError, match="model steps: timeout"):
        load_platform(str(path))


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "p.json"
    write(made_profile(), path)
    before = path.read_bytes()
    with pytest.raises(ConfigError, match="cannot write"):
        write(made_profile(), path / "below")
    assert path.read_bytes() == before and list(tmp_path.iterdir()) == [path]


def test_a_prompts_step_is_what_it_adds() -> None:
    """Decode steps of 5 ms, one of 60 ms whose result shows late: the interval before is long, its own is short."""
    at, seen = 0.0, []
    for i in range(20):
        at += {10: 0.055, 11: 0.010}.get(i, 0.005)
        seen.append(Seen(at, ((544, 544), (1, 600)) if i == 11 else ((1, 600),)))
    found = _mixed([seen, seen])
    assert found["times_ms"] == pytest.approx([60.0, 60.0]) and found["n_steps"] == 1
    assert (found["prefill_tok"], found["decode_seqs"]) == (544, 1)


def test_a_disturbed_row_is_refused() -> None:
    values = {"kind": "mixed", "prefill_tok": 5, "decode_seqs": 4, "context_tok": 9, "pairs": 9}
    assert step(values | {"times_ms": [3.0, 2.0]}).ms.median == 2.5
    with pytest.raises(ConfigError, match="quiet host"):
        step(values | {"times_ms": [-3.0, -2.0]})


def test_host_measurements() -> None:
    assert all(c.gb_per_s.median > 0 and c.gb_per_s.n == 3 for c in host_copies(3))
    assert {c.call for c in memfd_calls(2)} == {"create", "map", "set_access", "unmap", "destroy"}
    with pytest.raises(ConfigError, match=r"no config\.json"):
        calibrate(Path("/nowhere"))
    with pytest.raises(ConfigError, match="nothing was observed"):
        spread([])
