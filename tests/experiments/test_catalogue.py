from __future__ import annotations

from vamp.experiments import catalogue
from vamp.experiments.notebooks import find


def test_each_notebooks_backends_are_its_experiments() -> None:
    by_stem = {path.stem: catalogue.backends_of(path) for path in find([])}
    assert by_stem["01_table1_platforms"] == ("sim",)
    assert by_stem["07_table4_replay"] == ("sim", "cpu", "cuda", "recorded")
    assert all("sim" in backends for backends in by_stem.values())


def test_a_backend_leaves_out_those_that_lack_it(checkout) -> None:
    mute = checkout("99_checks_nothing")
    only_sim = checkout("98_sim", "p = table1.Params.check(backend=backend)")
    both = checkout("97_both", "p = table2.Params.check(backend=backend)")
    assert catalogue.having([mute, only_sim, both], "cpu") == ([mute, both], [only_sim])
    assert catalogue.having([mute, only_sim, both], "sim") == ([mute, only_sim, both], [])
