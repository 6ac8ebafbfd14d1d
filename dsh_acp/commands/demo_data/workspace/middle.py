"""The middle of a list of numbers."""

from collections.abc import Sequence


def median(values: Sequence[float]) -> float:
    """The middle value; of an even count, the mean of the two in the middle."""
    ordered = sorted(values)
    half = len(ordered) // 2
    return ordered[half]
