"""Repeating a failed attempt: when, after how long, and for the record.

The wait ends at once when the turn is cancelled. How many retries were used is read from the log,
per step and policy.
"""

from typing import ClassVar

from dsh_acp.agent import folds
from dsh_acp.agent.hooks import Proceed, Recovery, RequestFailed
from dsh_acp.agent.services import Clock
from dsh_acp.llm import retry
from dsh_acp.log.events import Event
from dsh_acp.log.payloads import StepStart
from dsh_acp.log.plugin_payloads import LlmRetry, LlmRetryStarted
from dsh_acp.log.session_log import SessionLog
from dsh_acp.messages import new_id


class RetryFold:
    """The last retry of the open step, per provider and policy."""

    types: ClassVar[tuple[str, ...]] = (LlmRetry.TYPE, StepStart.TYPE)

    def __init__(self) -> None:
        self.chains: dict[tuple[str, str], LlmRetry] = {}

    def apply(self, event: Event) -> None:
        """Take in a retry; a new step begins without any."""
        match event.payload:
            case LlmRetry() as scheduled:
                self.chains[scheduled.provider, scheduled.policy_key] = scheduled
            case StepStart():
                self.chains.clear()
            case _:
                pass


class Retries:
    """The `request_error` middleware that repeats attempts as the provider's policy says."""

    def __init__(self, log: SessionLog, following: folds.Folds, clock: Clock) -> None:
        self._log = log
        self._following = following
        self._clock = clock
        self._fold = following.add(RetryFold())

    async def request_error(self, failed: RequestFailed, proceed: Proceed[Recovery]) -> Recovery:
        """Wait and retry, or pass the failure on."""
        policy = failed.policy
        if policy is None:
            return await proceed()
        self._following.catch_up()
        key = retry.policy_key(policy)
        last = self._fold.chains.get((failed.provider, key))
        used = last.retry if last is not None else 0
        delay = retry.next_delay(policy, failed.failure, used, self._clock.rand())
        if delay is None:
            return await proceed()
        scheduled = LlmRetry(
            retry_id=last.retry_id if last is not None else new_id(),
            turn=failed.turn,
            step=failed.step,
            provider=failed.provider,
            mode="normal",
            policy_key=key,
            retry=used + 1,
            max_retries=policy.max_retries,
            delay_ms=delay,
            failure=failed.failure,
        )
        self._log.append(scheduled)
        await self._clock.sleep(delay / 1000)
        self._log.append(
            LlmRetryStarted(scheduled.retry_id, failed.turn, failed.step, scheduled.retry)
        )
        return "retry"
