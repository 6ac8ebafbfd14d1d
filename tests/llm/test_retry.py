"""When a failed attempt is repeated."""

import json

from hypothesis import given, strategies as st
from msgspec import UNSET
import pytest

from dsh_acp.config import ProviderSettings
from dsh_acp.llm.provider import RetryPolicy
from dsh_acp.llm.retry import PATIENCE_MS, next_delay, policy_key, policy_of
from dsh_acp.messages import Failure

POLICY = RetryPolicy()


def failure(code: str, after: int | None = None) -> Failure:
    return Failure(
        message="x", code=code, provider_retry_after_ms=UNSET if after is None else after
    )


@pytest.mark.parametrize("code", ["EMPTY_RESPONSE", "RATE_LIMIT", "SERVER", "TIMEOUT", "TRANSPORT"])
def test_passing_trouble_is_repeated_a_bounded_number_of_times(code: str) -> None:
    delays = [next_delay(POLICY, failure(code), used, 0.5) for used in range(7)]
    assert delays == [500, 1000, 2000, 4000, 8000, None, None]


@pytest.mark.parametrize(
    "code",
    "AUTH QUOTA INVALID_REQUEST CONTEXT_WINDOW_EXCEEDED STREAM_CLOSED MALFORMED_RESPONSE "
    "MODEL_NOT_FOUND CONTENT_FILTER MISSING_CREDENTIAL HTTP_404 UNKNOWN".split(),
)
def test_what_will_not_pass_is_not_repeated(code: str) -> None:
    assert next_delay(POLICY, failure(code), 0, 0.5) is None


# LLM-19, CANCEL-08
@pytest.mark.parametrize("after, expected", [(2000, 2000), (120_000, 120_000), (120_001, None)])
def test_the_providers_wish_is_obeyed_up_to_our_patience(
    after: int, expected: float | None
) -> None:
    assert next_delay(POLICY, failure("RATE_LIMIT", after), 0, 0.9) == expected


def test_a_wish_is_bounded_by_the_number_of_retries_as_well() -> None:
    assert next_delay(POLICY, failure("RATE_LIMIT", 1), 5, 0) is None


def test_jitter_spreads_around_the_delay() -> None:
    assert next_delay(POLICY, failure("SERVER"), 0, 0) == 450
    assert next_delay(POLICY, failure("SERVER"), 0, 1) == pytest.approx(550)


@given(st.integers(0, 5000), st.floats(0, 1), st.floats(0, 1))
def test_no_delay_is_longer_than_the_policy_says(used: int, rand: float, jitter: float) -> None:
    policy = RetryPolicy(max_retries=10_000, jitter=jitter)
    delay = next_delay(policy, failure("SERVER"), used, rand)
    assert delay is not None and 0 <= delay <= policy.max_delay_ms <= PATIENCE_MS


def test_a_policy_is_as_it_is_configured() -> None:
    assert policy_of(ProviderSettings(name="p")) == POLICY
    settings = ProviderSettings(name="p", max_retries=9, retry_delay_s=0.01, retry_delay_max_s=0.02)
    delays = [next_delay(policy_of(settings), failure("SERVER"), n, 0.5) for n in (0, 1, 8, 9)]
    assert delays == [10, 20, 20, None]


def test_the_key_of_a_policy_is_that_of_the_log() -> None:
    assert policy_key(RetryPolicy(codes=tuple(reversed(POLICY.codes)))) == (
        '["normal",5,["EMPTY_RESPONSE","RATE_LIMIT","SERVER","TIMEOUT","TRANSPORT"],500,10000,0.1]'
    )
    assert json.loads(policy_key(RetryPolicy(initial_delay_ms=0.5)))[3] == 0.5
