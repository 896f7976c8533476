"""How far 1 to 5 of 50 clients move a noisy mean before their sum is refused.

Run: python benchmarks/federated_poison.py [--trials 60]

Honest updates have norm C and random directions; attackers add one long vector between them. R is the length at which
half of such sums are refused; the mean then moves by R / 50. Noise is seeded: a simulation.
"""

from __future__ import annotations

import argparse
import dataclasses
import math

import numpy as np

from mezzotint.federated.encoding import GaussianEncoding, gaussian_encoding
from mezzotint.federated.secagg import OutOfRangeInteger

CLIENTS, SIZE, MULTIPLIER = 50, 1000, 8.0
FACTORS = (0.9, 1.0, 1.1)


def refused(encoding: GaussianEncoding, attackers: int, length: float, seed: int) -> bool:
    """Whether the sum of honest updates and a long vector, sent by so many attackers, is refused."""
    rng = np.random.default_rng(seed)
    honest = rng.normal(size=(CLIENTS - attackers, SIZE))
    honest /= np.linalg.norm(honest, axis=1, keepdims=True)
    direction = rng.normal(size=SIZE)
    direction *= length / attackers / np.linalg.norm(direction)
    unclipped = dataclasses.replace(encoding, clip_norm=1e6 * encoding.granularity)
    reports = [encoding.encode(update, rng=int(rng.integers(2**62))) for update in honest]
    seeds = rng.integers(2**62, size=attackers).tolist()
    reports += [unclipped.encode(direction, rng=one) for one in seeds]
    total = np.sum(reports, axis=0) % 2**encoding.modulus_bits
    try:
        encoding.check_sum(total, count=CLIENTS, size=SIZE)
    except OutOfRangeInteger:
        return True
    return False


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=60)
    trials = parser.parse_args().trials
    encoding = gaussian_encoding(
        noise_multiplier=MULTIPLIER, clip_norm=1.0, clients=CLIENTS, size=SIZE
    )
    largest = encoding.largest_honest_norm(count=CLIENTS, size=SIZE)
    noise = CLIENTS * encoding.scheme(SIZE).variance * SIZE
    print(f"threshold {largest:.1f} C; noise alone {math.sqrt(noise):.1f} C")
    print("| attackers | mean moved at half power | refused at .9, 1, 1.1 of that |")
    print("|---|---|---|")
    for attackers in range(1, 6):
        signal = CLIENTS - attackers  # the expected squared norm of random unit vectors' sum
        half = math.sqrt(largest**2 - noise - signal)
        rates = []
        for factor in FACTORS:
            count = sum(refused(encoding, attackers, factor * half, seed) for seed in range(trials))
            rates.append(f"{count / trials:.2f}")
        print(f"| {attackers} | {half / CLIENTS:.2f} C | {', '.join(rates)} |")


if __name__ == "__main__":
    main()
