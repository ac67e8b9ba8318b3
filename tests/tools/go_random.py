"""Go's math/rand, draw by draw: with it a run has the pods and the node order that the FGD simulator gave it.

An additive lagged Fibonacci generator (607, 273) over 64 bits. Go seeds it by mixing a linear congruential generator
with the state that 7.8 · 10¹² steps from seed 1 lead to, which it carries as a table; here that state is computed, by
raising x to that power modulo the generator's polynomial.
"""

from functools import lru_cache
from typing import Any

_LENGTH, _TAP = 607, 273
_WORD = 2**64
_PRIME = 2**31 - 1
_STEPS = 7_800_000_000_000
_BYTES = 18
"""Enough for a sum of 607 products of two words."""

Polynomial = list[int]


class GoRandom:
    """Go's `rand.New(rand.NewSource(seed))`. Mutates."""

    def __init__(self, seed: int) -> None:
        self._state = [mixed ^ base for mixed, base in zip(_scatter(seed, 40, 20), _base(), strict=True)]
        self._tap, self._feed = 0, _LENGTH - _TAP

    def int63(self) -> int:
        """Int63: 63 random bits."""
        self._tap = (self._tap - 1) % _LENGTH
        self._feed = (self._feed - 1) % _LENGTH
        drawn = self._state[self._feed] = (self._state[self._feed] + self._state[self._tap]) % _WORD
        return drawn % 2**63

    def randrange(self, stop: int, /) -> int:
        """Intn, for numbers of 31 bits: what would be uneven is drawn again."""
        least = 2**31 % stop
        drawn = self.int63() >> 32
        while drawn > 2**31 - 1 - least:
            drawn = self.int63() >> 32
        return drawn % stop

    def shuffle(self, things: list[Any], /) -> None:
        """Shuffle: from the end, each with one that is not behind it."""
        for last in range(len(things) - 1, 0, -1):
            other = self._below(last + 1)
            things[last], things[other] = things[other], things[last]

    def permutation(self, count: int) -> list[int]:
        """Perm: the numbers below `count` in random order."""
        numbers = [0] * count
        for place in range(count):
            other = self.randrange(place + 1)
            numbers[place], numbers[other] = numbers[other], place
        return numbers

    def _below(self, stop: int) -> int:
        """int31n: Lemire's way to a number below `stop`."""
        product = (self.int63() >> 31) * stop
        while product % 2**32 < stop and product % 2**32 < 2**32 % stop:
            product = (self.int63() >> 31) * stop
        return product >> 32


def _scatter(seed: int, first: int, second: int) -> list[int]:
    """607 words from a linear congruential generator, three of its numbers in each."""
    number = seed % _PRIME or 89482311
    for _ in range(20):
        number = 48271 * number % _PRIME
    words = []
    for _ in range(_LENGTH):
        word = 0
        for shift in (first, second, 0):
            number = 48271 * number % _PRIME
            word ^= number << shift
        words.append(word % _WORD)
    return words


@lru_cache(maxsize=1)
def _base() -> list[int]:
    """The state after `_STEPS` steps from seed 1."""
    start = _scatter(1, 20, 10)
    series = [start[_place(step)] for step in range(-_LENGTH, 0)]
    power = _power(_STEPS)
    state = [0] * _LENGTH
    for step in range(_STEPS - _LENGTH, _STEPS):
        state[_place(step)] = sum(factor * word for factor, word in zip(power, series, strict=True)) % _WORD
        power = _shifted(power)
    return state


def _place(step: int) -> int:
    """Where a step leaves its number: it fills the state downwards."""
    return (_LENGTH - _TAP - 1 - step) % _LENGTH


def _power(exponent: int) -> Polynomial:
    """x to the power, modulo x⁶⁰⁷ = x³³⁴ + 1 and modulo 2⁶⁴."""
    power = [1] + [0] * (_LENGTH - 1)
    for bit in f"{exponent:b}":
        power = _squared(power)
        if bit == "1":
            power = _shifted(power)
    return power


def _shifted(power: Polynomial) -> Polynomial:
    """Times x."""
    return _folded([0, *power])


def _squared(power: Polynomial) -> Polynomial:
    """All products at once: as one product of two large numbers."""
    packed = int.from_bytes(b"".join(factor.to_bytes(_BYTES, "little") for factor in power), "little")
    raw = (packed * packed).to_bytes(2 * _BYTES * _LENGTH, "little")
    return _folded([int.from_bytes(raw[at : at + 8], "little") for at in range(0, len(raw), _BYTES)])


def _folded(power: Polynomial) -> Polynomial:
    for degree in range(len(power) - 1, _LENGTH - 1, -1):
        for lower in (degree - _LENGTH, degree - _TAP):
            power[lower] = (power[lower] + power[degree]) % _WORD
    return power[:_LENGTH]
