from __future__ import annotations

from typing import Any

import pytest

from vamp.errors import ConfigError
from vamp.workloads.client.options import ClientOptions, root_url


@pytest.mark.parametrize("url", ["http://h:1", "http://h:1/", "http://h:1/v1", "http://h:1/v1/", " http://h:1 "])
def test_root_url(url: str) -> None:
    assert str(root_url(url) / "v1" / "models") == "http://h:1/v1/models"


def test_root_url_below_a_path() -> None:
    assert str(root_url("https://h/api/v1") / "metrics") == "https://h/api/metrics"


@pytest.mark.parametrize("url", ["", "h:1", "localhost:8000", "ftp://h", "http://", "http://h:99999", "http://["])
def test_bad_url(url: str) -> None:
    with pytest.raises(ConfigError, match="write http://HOST:PORT"):
        ClientOptions(url)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"concurrency": 0}, "concurrency is 0, the minimum is 1"),
        ({"vocab_tok": 3}, "vocab_tok is 3, the minimum is 4"),
        ({"max_line_bytes": 0}, "max_line_bytes is 0"),
        ({"request_timeout_s": 0.0}, "request_timeout_s is 0.0"),
        ({"request_timeout_s": float("nan")}, "request_timeout_s is nan"),
        ({"max_run_s": -1.0}, "max_run_s is -1.0"),
        ({"carry_replies": True, "return_token_ids": False}, "carry_replies needs token ids"),
    ],
)
def test_out_of_range(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ClientOptions("http://h", **settings)


def test_smallest_settings_pass() -> None:
    ClientOptions("http://h", concurrency=1, vocab_tok=4, max_line_bytes=1, request_timeout_s=1e-3, max_run_s=1e-3)


def test_key_is_sent_and_not_shown() -> None:
    options = ClientOptions("http://h", api_key="s3cret")
    assert options.headers == {"Authorization": "Bearer s3cret"}
    assert "s3cret" not in repr(options)
    assert ClientOptions("http://h").headers == {}
