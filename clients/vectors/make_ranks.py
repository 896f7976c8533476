"""Writes the conformance vectors of ranked codebooks: `python clients/vectors/make_ranks.py` makes them anew.

An implementation reproduces keys, signs, positions and normal numbers bit for bit, codes from the given secret words
exactly (no two inner products are closer than 1e-6 of the largest), and estimates to 1e-9.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from mezzotint.vectors import RankedCodebook, codewords as codebooks
from mezzotint.vectors.rank_table import rank_table

FOLDER = Path(__file__).resolve().parent


def schemes() -> list[RankedCodebook]:
    """A transform with a null output, a rotated simplex with a slack coordinate, and reports of two indices."""
    return [
        RankedCodebook(
            table=rank_table(codewords=30, top=2, epsilon=4.0, null=True), kind="GX", dimension=40, norms="null",
            subspace=10, beacon="conformance",
        ),
        RankedCodebook(table=rank_table(codewords=4, top=1, epsilon=2.0), kind="S", dimension=5, norms="slack"),
        RankedCodebook(
            table=rank_table(codewords=16, top=1, epsilon=5.0), kind="G", dimension=9, norms="slack", indices=2,
            clip_norm=2.5, subspace=8,
        ),
    ]  # fmt: skip


def document(scheme: RankedCodebook, number: int) -> dict[str, object]:
    """One file: the mechanism, then what eight reports and their estimates are."""
    rng = np.random.default_rng(number)
    # Eighths are exact in binary and short in decimal.
    inputs = (
        rng.integers(-8, 9, size=(8, scheme.dimension))
        / 8
        * scheme.clip_norm
        / scheme.dimension**0.5
        // 0.0625
        / 16
    )
    seeds = [0, 1, 2**32, 2**32 + 1, 2**53 + 1, 2**63, 2**64 - 2, 2**64 - 1]
    words = rng.integers(0, 2**64, size=(8, scheme.indices), dtype=np.uint64).tolist()
    key = codebooks.stream_key("report", scheme.beacon, seeds[4], 0)
    width = scheme.subspace or scheme.dimension + (scheme.norms == "slack")
    padded = 1 << (scheme.dimension + (scheme.norms == "slack") - 1).bit_length()
    codes = [
        scheme.report(row, seed, word) for row, seed, word in zip(inputs, seeds, words, strict=True)
    ]
    return {
        "mechanism": json.loads(scheme.to_json()),
        "stream": {
            "seed": str(seeds[4]),
            "key": key.hex(),
            "signs_of_its_round": codebooks.signs(scheme.beacon, seeds[4] >> 32, padded)
            .astype(int)
            .tolist(),
            "positions": codebooks.positions(key, scheme.subspace, padded).tolist()
            if scheme.subspace
            else None,
            "normals_of_row_1_in_units": (
                codebooks.normal_rows(key, 1, 1, width)[0] / codebooks.UNIT
            )
            .astype(int)
            .tolist(),
        },
        "seeds": [str(seed) for seed in seeds],
        "inputs": inputs.tolist(),
        "words": [[str(word) for word in row] for row in words],
        "codes": [str(code) for code in codes],
        "estimates": [
            scheme.decode(code, seed).tolist() for code, seed in zip(codes, seeds, strict=True)
        ],
    }


def files() -> dict[str, str]:
    """Names and texts."""
    found = {
        f"ranks-{number}.json": json.dumps(document(scheme, number), separators=(",", ":")) + "\n"
        for number, scheme in enumerate(schemes(), start=1)
    }
    found["normal-table.json"] = (
        json.dumps(codebooks.normal_table().tolist(), separators=(",", ":")) + "\n"
    )
    return found


if __name__ == "__main__":
    for name, text in files().items():
        (FOLDER / name).write_text(text, encoding="utf-8")
