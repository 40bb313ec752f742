import pytest
from hypothesis import given
from hypothesis import strategies as st

from vamp.cli.checks import check_parameters, concurrencies, existing, ratio_pct
from vamp.errors import ConfigError


@given(st.floats(0, 50))
def test_ratio_from_0_to_50_is_taken_as_it_is(value):
    assert ratio_pct(str(value)) == value


@given(st.one_of(st.floats(max_value=-1e-9), st.floats(min_value=50.0001), st.just(float("nan"))))
def test_ratio_outside_is_refused_with_the_limit(value):
    with pytest.raises(ConfigError, match="from 0 to 50"):
        ratio_pct(str(value))


@pytest.mark.parametrize("text", ["", "fast", "15%", "1,5"])
def test_ratio_that_is_no_number_is_refused(text):
    with pytest.raises(ConfigError, match="must be a number from 0 to 50"):
        ratio_pct(text)


def test_auto_is_for_a_later_version():
    with pytest.raises(ConfigError, match="auto is not in this version"):
        ratio_pct("auto")


@pytest.mark.parametrize(
    ("texts", "levels"), [([], []), (["16"], [16]), (["16", "20"], [16, 20]), (["28, 16,28"], [28, 16])]
)
def test_concurrencies_by_repetition_or_commas(texts, levels):
    assert concurrencies(texts) == levels


@pytest.mark.parametrize("text", ["0", "-4", "1.5", "x", "16;20"])
def test_senseless_concurrency_is_refused(text):
    with pytest.raises(ConfigError, match="whole number of at least 1"):
        concurrencies([text])


def test_existing_path_becomes_absolute(tmp_path, monkeypatch):
    (tmp_path / "t.jsonl").touch()
    monkeypatch.chdir(tmp_path)
    assert existing((tmp_path / "t.jsonl").relative_to(tmp_path)) == str(tmp_path / "t.jsonl")
    with pytest.raises(ConfigError, match="does not exist"):
        existing(tmp_path / "u.jsonl")


@pytest.mark.parametrize("given_", [{"backend": "gpu"}, {"platform": "h300"}, {"ratio": "51"}])
def test_wrong_notebook_parameter_is_refused_before_anything_starts(given_):
    with pytest.raises(ConfigError, match=next(iter(given_.values()))):
        check_parameters(given_)


def test_other_parameters_are_the_notebooks_business():
    check_parameters({"ratio": "20", "platform": "h100_pcie_tp2", "backend": "sim", "whatever": "x"})
