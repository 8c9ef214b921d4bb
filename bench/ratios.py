"""Ratios: how rounds become one number, and when that number says nothing.

The invariant: a ratio is taken within one round, between two measurements that stood next to each other in time.
"""

from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

INCONCLUSIVE_SPREAD = 0.25
"""A baseline that differs by more than this from round to round makes its ratios guesses."""


class Target(NamedTuple):
    """What a ratio should reach: its floor at least, its goal at best; ``at_most`` where less is better."""

    floor: float
    goal: float
    at_most: bool = False

    def reaches(self, ratio: float, bound: float) -> bool:
        """Tell whether a ratio is on the good side of a bound."""
        return ratio <= bound if self.at_most else ratio >= bound


def median_ratio(subject: Sequence[float], baseline: Sequence[float]) -> float:
    """Divide round by round, and take the median.

    Raises:
        ValueError: the two have not the same number of rounds, or none.
    """
    return median(ours / theirs for ours, theirs in zip(subject, baseline, strict=True))


def spread(values: Sequence[float]) -> float:
    """Return how far the largest and the smallest value are apart, as a part of the median."""
    return (max(values) - min(values)) / median(values)


def verdict(ratio: float, target: Target | None, baseline_spread: float) -> str:
    """Judge a ratio by its target; where the baseline was not steady, say only that."""
    if baseline_spread > INCONCLUSIVE_SPREAD:
        return "inconclusive"
    if target is None:
        return ""
    if target.reaches(ratio, target.goal):
        return "pass, goal"
    return "pass" if target.reaches(ratio, target.floor) else "miss"
