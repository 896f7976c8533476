"""Writes the conformance vectors of the sampling rule: `python clients/vectors/make_sampling.py` makes them anew.

Every word of `draws` is at least two units away from where rounding of the threshold could change the row, so that an
implementation reproduces all codes exactly.
"""

from __future__ import annotations

import hashlib
import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from mezzotint import Mechanism, families
from mezzotint.core.kernels import alias_cells
from mezzotint.core.sampler import ElementWords, codes_from_words, key_from

FOLDER = Path(__file__).resolve().parent
TOTAL = 2**32
DRAWS = 60


def mechanisms() -> dict[str, Mechanism]:
    """Tables that need every part of the rule: several rows, jumps, uneven knots, many levels, categories."""
    generator = np.random.default_rng(1)
    cuts = np.sort(generator.integers(0, TOTAL + 1, size=(7, 299)), axis=1)
    wide = np.diff(np.pad(cuts, ((0, 0), (1, 1)), constant_values=((0, 0), (0, TOTAL))), axis=1)
    response = families.k_randomized_response(lower=0, upper=1, levels=4, epsilon=2.0).weights
    knots = [-1e-7, 0.1, 0.25, 0.25, 1 / 3, 1.5, 1e5]
    return {
        "one bit": families.randomized_response(lower=20, upper=700, epsilon=1.0),
        # What a design once found, written out: what a later one finds may differ in its last units.
        "optimal": Mechanism(
            name="optimal",
            knots=[0.0, 2.999271778203225, 3.0007282039013337, 5.999999999301542, 6.0],
            levels=[-10.749304827190354, -7.749453952918813, 13.749453942794183, 16.74930481775837],
            weights=[
                [1336351496, 1337090974, 810986666, 810538160],
                [810538155, 1337090974, 1336800007, 810538160],
                [810538155, 1336800015, 1337090966, 810538160],
                [810538155, 810986671, 1337090966, 1336351504],
                [810538155, 810986671, 1337090965, 1336351505],
            ],
        ),
        "three levels": families.k_randomized_response(lower=-1.0, upper=2.0, levels=3, epsilon=1.0),
        "jumps": Mechanism(
            knots=[0.0, 0.3, 0.3, 0.7, 0.7, 0.9, 0.9, 1.0], levels=[-0.5, 0.25, 1e16, 1e22],
            weights=np.repeat(response, 2, axis=0),
        ),
        "uneven knots, 300 levels": Mechanism(
            knots=knots, levels=np.sort(generator.normal(size=300)) * 1e-5, weights=wide.astype(np.int64)
        ),
        "categories": families.categorical(
            categories=["yes", "no", 7, True, "grün", 'a "b"\\\n\x7f'], epsilon=1.0, other=True, missing=True
        ),
        "without a finite epsilon": Mechanism(
            knots=[0.0, 1.0], levels=[0.0, 0.5, 1.0], weights=[[TOTAL, 0, 0], [0, TOTAL // 2, TOTAL // 2]]
        ),
    }  # fmt: skip


def threshold(mechanism: Mechanism, x: float) -> tuple[int, int]:
    """The left row, and the exact t * 2^32, rounded."""
    clipped = min(max(x, mechanism.lower), mechanism.upper)
    knots = mechanism.knots.tolist()
    row = max(k for k in range(len(knots) - 1) if knots[k] <= clipped and knots[k] < knots[k + 1])
    left, right = Fraction(knots[row]), Fraction(knots[row + 1])
    return row, round((Fraction(clipped) - left) / (right - left) * TOTAL)


def draws(name: str, mechanism: Mechanism, generator: np.random.Generator) -> dict[str, Any]:
    """Inputs inside, outside and beside knots, words beside both thresholds and anywhere, and the codes."""
    knots = mechanism.knots
    if mechanism.categories is not None:
        labels: list[Any] = [
            *(one for one in mechanism.categories if one[0] != "("),
            7,
            True,
            "something else",
            None,
        ]
        inputs = [labels[i % len(labels)] for i in range(DRAWS)]
        values = np.array([mechanism.numbers([value])[0] for value in inputs])
    else:
        beside = np.concatenate([knots, np.nextafter(knots, np.inf), np.nextafter(knots, -np.inf)])
        width = mechanism.upper - mechanism.lower
        anywhere = mechanism.lower + width * generator.uniform(-0.2, 1.2, DRAWS)
        inputs = np.where(
            generator.random(DRAWS) < 0.4, generator.choice(beside, DRAWS), anywhere
        ).tolist()
        values = np.array(inputs)
    words, bits = [], mechanism.bits
    cells = alias_cells(mechanism.weights, bits)
    for value in values.tolist():
        row, at = threshold(mechanism, value)
        near = [high for high in (at - 5, at + 4) if 0 <= high < TOTAL]
        anywhere = int(generator.integers(0, TOTAL))
        high = int(generator.choice(near)) if near and generator.random() < 0.5 else anywhere
        assert not -2 < high - at < 2
        low = int(generator.integers(0, TOTAL))
        unit = int(cells[row + (high < at), low >> (32 - bits)]) >> bits
        if (
            unit and generator.random() < 0.6
        ):  # the last unit of the cell's own level, or the first of its alias
            low = (low >> (32 - bits) << (32 - bits)) + unit - int(generator.integers(0, 2))
        words.append(high << 32 | low)
    codes = codes_from_words(mechanism, values, np.array(words, dtype=np.uint64))
    return {
        "name": name,
        "mechanism": mechanism.to_json(),
        "inputs": inputs,
        "words": [f"{word:016x}" for word in words],
        "codes": codes.tolist(),
    }


def keystreams() -> list[dict[str, Any]]:
    """Words of seeds: from the first element, from an odd one, and across the end of a part."""
    found = []
    for seed, first in ((0, 0), (7, 3), (123456789, 2**18 - 3), (7, 2**33 + 5)):
        words = np.empty(8, dtype=np.uint64)
        ElementWords(key_from(seed), first).fill(words)
        key = key_from(seed).hex()
        found.append(
            {
                "seed": seed,
                "key": key,
                "first": first,
                "words": [f"{word:016x}" for word in words.tolist()],
            }
        )
    return found


def refused(mechanism: Mechanism) -> list[dict[str, str]]:
    """Texts that no reader takes, and why."""
    text = mechanism.to_json()
    document = json.loads(text)
    first, second = document["weights"][0][:2]

    def edited(why: str, **changes: Any) -> dict[str, str]:
        return {"why": why, "text": json.dumps({**document, **changes})}

    def forged(why: str, **changes: Any) -> dict[str, str]:
        """Edited, and the hash made to fit: only the rule itself refuses it."""
        table = {key: {**document, **changes}[key] for key in ("knots", "levels", "weights")}
        text = json.dumps(table, separators=(",", ":"))
        return edited(why, **changes, sha256=hashlib.sha256(text.encode()).hexdigest())

    stated = document["certificate"]["epsilon"]
    fewer = [[*one] for one in document["weights"]]
    fewer[1][int(np.argmax(fewer[1]))] -= 1
    moved = [[first - 1, second + 1, *document["weights"][0][2:]], *document["weights"][1:]]
    return [
        {"why": "truncated", "text": text[: len(text) // 2]},
        {"why": "a key stands twice", "text": text.replace('"version":1', '"version":1,"version":1')},
        edited("another format", format="mezzotint-table"),
        edited("another version", version=2),
        edited("an unknown key", note="x"),
        forged("a row that does not sum", weights=fewer),
        edited("a weight that is no integer", weights=[[first + 0.5, second - 0.5, *document["weights"][0][2:]],
                                                       *document["weights"][1:]]),
        edited("an edited table", weights=moved),
        forged("levels out of order", levels=document["levels"][::-1]),
        forged("a jump at the end", knots=[document["knots"][0]] * 2 + document["knots"][2:]),
        edited("an understated epsilon", certificate={"epsilon": stated / 2}),
        edited("an overstated epsilon", certificate={"epsilon": stated * 2}),
        edited("an unknown key of the certificate", certificate={"epsilon": stated, "unit": "report"}),
        edited("no certificate", certificate=None),
    ]  # fmt: skip


def document() -> dict[str, Any]:
    """All vectors."""
    generator = np.random.default_rng(2)
    tables = mechanisms()
    return {
        "format": "mezzotint-sampling-vectors",
        "version": 1,
        "keystreams": keystreams(),
        "draws": [draws(name, mechanism, generator) for name, mechanism in tables.items()],
        "refused": refused(tables["optimal"]),
    }


if __name__ == "__main__":
    (FOLDER / "sampling.json").write_text(json.dumps(document(), indent=1) + "\n", encoding="utf-8")
