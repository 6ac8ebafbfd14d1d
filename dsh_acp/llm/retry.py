"""When a failed attempt is repeated; pure.

A provider that names a time to wait is obeyed up to `PATIENCE_MS`; one that asks for more is not
worth a silent editor, and its failure is final.
"""

import math
from typing import Final

from dsh_acp import jsontext
from dsh_acp.config import ProviderSettings
from dsh_acp.llm.provider import RetryPolicy
from dsh_acp.messages import Failure

PATIENCE_MS: Final = 120_000


def policy_of(settings: ProviderSettings) -> RetryPolicy:
    """The policy that `settings` ask for."""
    return RetryPolicy(
        max_retries=settings.max_retries,
        initial_delay_ms=settings.retry_delay_s * 1000,
        max_delay_ms=settings.retry_delay_max_s * 1000,
    )


def next_delay(
    policy: RetryPolicy, failure: Failure, retries_used: int, rand: float
) -> float | None:
    """Milliseconds to wait before the next attempt; `None` when there is none.

    `rand` is in [0, 1) and spreads the delay by the policy's jitter.
    """
    if failure.code not in policy.codes or retries_used >= policy.max_retries:
        return None
    asked = failure.provider_retry_after_ms
    if isinstance(asked, int) and asked > 0:
        return float(asked) if asked <= max(PATIENCE_MS, policy.max_delay_ms) else None
    # Bounded before the power is taken, so that no count of retries overflows a float.
    doubled = math.ldexp(policy.initial_delay_ms, min(retries_used, 64))
    spread = 1 - policy.jitter + 2 * policy.jitter * rand
    return min(min(doubled, policy.max_delay_ms) * spread, policy.max_delay_ms)


def policy_key(policy: RetryPolicy) -> str:
    """The text that names `policy` in `llm/retry` events."""
    return jsontext.encode(
        [
            "normal",
            policy.max_retries,
            sorted(policy.codes),
            _number(policy.initial_delay_ms),
            _number(policy.max_delay_ms),
            _number(policy.jitter),
        ]
    ).decode()


def _number(value: float) -> int | float:
    return int(value) if value == int(value) else value
