"""No bytes make a parser crash or hang, as far as hypothesis finds.

`DSH_ACP_FUZZ_RUNS` sets how many inputs each parser gets (`make fuzz` does).
"""

import os

from fuzz_targets import TARGETS, Target
from hypothesis import HealthCheck, given, settings, strategies as st
import pytest

RUNS = int(os.environ.get("DSH_ACP_FUZZ_RUNS", "60"))
LIMIT_MS = 5000
"""One input that takes so long is a hang; the machine may be busy."""


def inputs(target: Target) -> st.SearchStrategy[bytes]:
    """Any bytes, what the parser knows in any order, and good input that was damaged."""
    known = st.sampled_from([*target.tokens, *target.seeds, b" ", b"\n"])
    mixed = st.lists(known | st.binary(max_size=4), max_size=40).map(b"".join)

    def damaged(seed: bytes) -> st.SearchStrategy[bytes]:
        place = st.integers(0, len(seed))
        return st.builds(
            lambda a, b, new: seed[: min(a, b)] + new + seed[max(a, b) :],
            place,
            place,
            known | st.binary(max_size=8),
        )

    changed = st.sampled_from(target.seeds).flatmap(damaged)
    return st.binary(max_size=400) | mixed | changed


@pytest.mark.parametrize("name", TARGETS)
def test_no_bytes_make_it_crash_or_hang(name: str) -> None:
    target = TARGETS[name]

    @settings(
        max_examples=RUNS,
        deadline=LIMIT_MS,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(inputs(target))
    def check(data: bytes) -> None:
        target.run(data)

    check()
