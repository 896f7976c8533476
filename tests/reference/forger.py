"""A forger of proofs: draws releases and proofs, and looks for one that certifies less than the truth.

Needs only the kernel and the standard library, so it runs against any copy of the kernel:

    python forger.py SECONDS SEED

prints the first false acceptance or crash (exit status 1), or how many proofs were tried (0). The truth is
the largest divergence over neighbouring data, enumerated in integers, at a factor above e**epsilon: a
lower bound of delta. It shares no line with the kernel.

Rule: generate, do not only mutate; ask for delta 0 and read what the kernel has. Every `require` of the
kernel that concerns a proof needs a forged part here.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import random
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any

from mezzotint import kernel

TOTAL = 2**32
MARGIN = 1 - Fraction(1, 10**6)
"""A claim of this share of the truth is false; the rest is for the factor above e**epsilon."""


@dataclass(frozen=True)
class Trial:
    """A release, a proof without its claim's hash, and the least delta that is true (None: no claim is)."""

    release: Any
    epsilon: Fraction
    proof: dict[str, Any]
    truth: Fraction | None


@dataclass(frozen=True)
class Finding:
    """A proof that was accepted for a false claim, or an error that is no verdict."""

    kind: str
    trial: Trial
    detail: str


# Truth ----------------------------------------------------------------------------------------------------------


def factor_above(epsilon: Fraction) -> Fraction:
    """A rational above e**epsilon, by less than a share of 1e-40."""
    with localcontext() as context:
        context.prec = 60
        power = (Decimal(epsilon.numerator) / Decimal(epsilon.denominator)).exp()
    return Fraction(power) * (1 + Fraction(1, 10**45)) if epsilon else Fraction(1)


@dataclass(frozen=True)
class Law:
    """Probabilities by outcome, as integers over their total."""

    masses: dict[Any, int]
    total: int


def divergence(p: Law, q: Law, c: Fraction) -> Fraction:
    """sum max(P - c Q, 0)."""
    left, right = q.total * c.denominator, p.total * c.numerator
    other = q.masses.get
    total = sum(max(mass * left - other(x, 0) * right, 0) for x, mass in p.masses.items())
    return Fraction(total, p.total * left)


def product(first: Law, second: Law) -> Law:
    """The law of two independent outcomes together."""
    masses = {(x, y): p * q for x, p in first.masses.items() for y, q in second.masses.items()}
    return Law(masses, first.total * second.total)


def added(first: Law, second: Law) -> Law:
    """The law of the sum of two independent integers."""
    masses: dict[Any, int] = {}
    for (x, p), (y, q) in itertools.product(first.masses.items(), second.masses.items()):
        masses[x + y] = masses.get(x + y, 0) + p * q
    return Law(masses, first.total * second.total)


def mixed(share: Fraction, first: Law, second: Law) -> Law:
    """One law with this probability, else the other."""
    here, there = (
        share.numerator * second.total,
        (share.denominator - share.numerator) * first.total,
    )
    masses: dict[Any, int] = {}
    for x in {**first.masses, **second.masses}:
        masses[x] = here * first.masses.get(x, 0) + there * second.masses.get(x, 0)
    return Law(masses, share.denominator * first.total * second.total)


def labelled(law: Law, label: str) -> Law:
    """Outcomes that differ from those of any other label."""
    return Law({(label, x): p for x, p in law.masses.items()}, law.total)


ALONE, NOTHING = Law({0: 1}, 1), Law({(): 1}, 1)


def law_of(row: list[int], places: Any = None) -> Law:
    """The law of a row, by level or by the integer that represents it."""
    masses: dict[Any, int] = {}
    for place, weight in zip(places or range(len(row)), row, strict=True):
        if weight:
            masses[place] = masses.get(place, 0) + weight
    return Law(masses, TOTAL)


def sampled_pairs(
    release: Any, pairs: list[tuple[Law, Law]], bases: list[Law]
) -> Iterator[tuple[Law, Law]]:
    """Both laws of one round, with the release's participation."""
    r = release.rate
    for p, q in pairs:
        if release.sampling == "none":
            yield p, q
        elif release.sampling == "public":
            absent = Law({("absent", 0): 1}, 1)
            yield mixed(r, labelled(p, "there"), absent), mixed(r, labelled(q, "there"), absent)
        else:
            for base in bases:
                if release.neighboring == "replace_one":
                    yield mixed(r, p, base), mixed(r, q, base)
                else:
                    yield mixed(r, p, base), base
                    yield base, mixed(r, p, base)


def truth_of(
    release: Any, epsilon: Fraction, pairs: list[tuple[Law, Law]], bases: list[Law]
) -> Fraction:
    """The largest divergence when every round has the same pair."""
    c, worst = factor_above(epsilon), Fraction(0)
    for p, q in sampled_pairs(release, pairs, bases):
        ours, theirs = p, q
        for _ in range(release.rounds - 1):
            ours, theirs = product(ours, p), product(theirs, q)
        worst = max(worst, divergence(ours, theirs, c))
    return worst


# Drawing --------------------------------------------------------------------------------------------------------


class Draw:
    """Random choices, with the odd ones often."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.forged = "any"
        self.near = False
        self.boxes = "honest"
        self.every_count = False
        self.split = False

    def begin(self) -> None:
        """Choose what of the next proof is forged: one part, so that the others are tight, or any.

        Rows that are near each other have much in common: what others add is then most of the truth.
        """
        self.forged = self.one("blanket", "division", "draws", "others", "none", "any")
        self.near = self.chance(0.3)
        self.every_count = self.forged == "draws" and self.chance(0.7)
        self.boxes = self.one("honest", "full", "rising", "first only", "no last", "no first")
        self.split = self.boxes == "full" or self.chance(0.5)

    def forges(self, part: str) -> bool:
        """Whether this part may be forged."""
        return self.forged in (part, "any")

    def chance(self, share: float) -> bool:
        return self.random.random() < share

    def one(self, *options: Any) -> Any:
        return self.random.choice(options)

    def integer(self, low: int, high: int) -> int:
        return self.random.randint(low, high)

    def row(self, size: int, kinds: tuple[int, ...] = (0, 1, 2, 3, 4)) -> list[int]:
        """Weights that sum to TOTAL: any (0), of one unit but for one (1), even (2), or with a gap."""
        kind = self.one(*kinds)
        if kind == 0:
            cuts = sorted(self.integer(0, TOTAL) for _ in range(size - 1))
            row = [b - a for a, b in itertools.pairwise([0, *cuts, TOTAL])]
        elif kind == 1:
            row = [1] * size
            row[self.integer(0, size - 1)] += TOTAL - size
        elif kind == 2:
            row = [TOTAL // size] * size
            row[0] += TOTAL - sum(row)
        else:
            parts = [self.one(1, 2, 3, 4, 0) for _ in range(size)]
            if not any(parts):
                parts[0] = 1
            row = [TOTAL * part // sum(parts) for part in parts]
            row[self.integer(0, size - 1)] += TOTAL - sum(row)
        return row

    def near_rows(self, levels: int, count: int) -> list[list[int]]:
        """Rows with most of their weight on one level, a little of which moves from row to row."""
        base = [TOTAL // self.one(10, 20, 100)] * levels
        base[self.one(0, 0, 0, levels - 1)] += TOTAL - sum(base)
        rows: list[list[int]] = []
        for _ in range(count):
            row = list(base)
            source, target = self.random.sample(range(levels), 2)
            amount = row[source] // self.one(2, 3, 10)
            row[source] -= amount
            row[target] += amount
            rows.append(row)
        return rows

    def rows(self, levels: int, count: int) -> tuple[list[list[int]], bool]:
        """Rows of a table, and whether they are distributions."""
        rows = [self.row(levels) for _ in range(count)]
        if self.near and levels > 1:
            rows = self.near_rows(levels, count)
        elif self.forged == "division" and self.chance(0.5):
            # Who has the lopsided row hides nobody: the case of all such clients is the worst.
            rows = [self.row(levels, (0, 2)), *(self.row(levels, (1,)) for _ in range(count - 1))]
            self.random.shuffle(rows)
        elif self.chance(0.25):
            rows = [rows[0]] * count
        elif self.chance(0.3) and levels == 2:
            low = self.one(1, 10**5, 10**9)
            rows = [[TOTAL - low, low], [low, TOTAL - low], *rows[2:]]
        elif self.chance(0.1):
            rows[-1] = rows[0]
        if self.chance(0.03):
            victim = list(rows[-1])
            victim[self.integer(0, levels - 1)] += self.one(1, -1, TOTAL, -TOTAL, 10**6)
            rows = [*rows[:-1], victim]
        good = all(sum(row) == TOTAL and min(row) >= 0 for row in rows)
        return rows, good

    def grid(self, step: Fraction) -> dict[str, int]:
        """Around the losses, wholly negative or positive, one point, or off."""
        wide = int(self.one(1, 3, 12) / step) + 1
        return self.one(
            {"low": -wide, "high": wide}, {"low": -wide, "high": wide}, {"low": -wide, "high": 0},
            {"low": -wide, "high": -1}, {"low": 0, "high": 0}, {"low": 0, "high": wide}, {"low": 1, "high": wide},
            {"low": -1, "high": 1}, {"low": -wide, "high": 1}, {"low": wide, "high": 2 * wide},
        )  # fmt: skip

    def epsilon(self) -> Fraction:
        return self.one(*(Fraction(n, 10) for n in (0, 0, 1, 5, 10, 30, 70)))

    def common(self) -> dict[str, Any]:
        """Sampling, relation and rounds."""
        more: dict[str, Any] = {"rounds": self.one(1, 1, 1, 2, 2)}
        kind = self.one("none", "none", "public", "poisson")
        if kind != "none":
            more |= {
                "sampling": kind,
                "rate": self.one(*(Fraction(1, n) for n in (2, 3, 10, 1000))),
            }
        if kind == "poisson":
            more["neighboring"] = self.one("replace_one", "add_or_remove_one")
        return more

    def numbers(self) -> dict[str, Any]:
        """The numbers that every proof of losses chooses."""
        step = self.one(*(Fraction(1, n) for n in (1, 3, 7, 10, 20)), Fraction(2), Fraction(1, 3))
        return {"step": str(step), "tail": self.one(160, 160, 80, 20, 6, 3, 1, 0)}


def text_of(rows: list[list[int]]) -> str:
    document = {
        "knots": list(range(len(rows))),
        "levels": list(range(len(rows[0]))),
        "weights": rows,
    }
    return json.dumps(document, sort_keys=True, separators=(",", ":"))


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def used(rows: list[list[int]]) -> list[list[int]]:
    """Distinct rows without empty columns."""
    columns = [k for k in range(len(rows[0])) if any(row[k] for row in rows)]
    distinct = list(dict.fromkeys(tuple(row[k] for k in columns) for row in rows))
    return [list(row) for row in distinct]


def reports(draw: Draw) -> Trial:
    """Reports from one to three tables, all seen."""
    tables = [
        draw.rows(draw.one(1, 2, 2, 3), 2 + draw.chance(0.2))
        for _ in range(draw.one(1, 1, 2, 2, 3))
    ]
    texts = [text_of(rows) for rows, _ in tables]
    more, epsilon = draw.common(), draw.epsilon()
    release = kernel.ExactRelease(
        observer="reports", tables=tuple((digest(t), 1) for t in texts), **more
    )
    truth = None
    if all(good for _, good in tables):
        laws = [[law_of(row) for row in rows] for rows, _ in tables]
        joint = [NOTHING]
        for options in laws:
            joint = [product(done, law) for done in joint for law in options]
        pairs = list(itertools.product(joint, repeat=2))
        if len(pairs) * (len(joint[0].masses) ** release.rounds) > 20_000:
            pairs = draw.random.sample(pairs, min(len(pairs), 40))
        truth = truth_of(release, epsilon, pairs, joint[:3])
    numbers = draw.numbers()
    step = Fraction(numbers["step"])
    kind = (
        draw.one("losses", "losses", "losses", "delta", "renyi") if len(tables) == 1 else "losses"
    )
    proof: dict[str, Any] = {"kind": kind, "tables": list(dict.fromkeys(texts))}
    if kind == "renyi":
        proof["order"] = draw.one("2", "11/10", "8", "3/2")
    elif kind == "losses":
        proof |= numbers | {"grids": [draw.grid(step) for _ in tables]}
        if draw.chance(0.02):
            proof["grids"] = proof["grids"][1:]
    elif release.rounds > 1 or release.sampling == "poisson":
        proof |= {"step": numbers["step"], "grid": draw.grid(step)}
    if kind != "renyi" and release.sampling != "none" and (kind == "losses" or "grid" in proof):
        proof["sampled"] = draw.grid(step)
    return Trial(release, epsilon, proof, truth)


def convolved(first: list[int], second: list[int]) -> list[int]:
    total = [0] * (len(first) + len(second) - 1)
    for i, p in enumerate(first):
        for j, q in enumerate(second):
            total[i + j] += p * q
    return total


def blanket(draw: Draw, rows: list[list[int]], chosen: list[int]) -> dict[str, Any]:
    """What rows have in common, or a little more than that."""
    block = draw.one(1, 1, 1, 2) if draw.forges("blanket") else 1
    groups = list(itertools.combinations_with_replacement(chosen, block))
    laws: list[list[int]] = []
    for group in groups:
        law = [1]
        for row in group:
            law = convolved(law, rows[row])
        laws.append([mass // TOTAL ** (block - 1) for mass in law])
    least = [min(column) for column in zip(*laws, strict=True)]
    components: list[dict[str, Any]] = []
    if sum(least):
        # One unit less than there is: it is not drawn for sure, so that it may be divided.
        spared = int(draw.every_count and sum(least) > 1 and draw.boxes != "rising")
        places = [[sum(least) - spared] for _ in groups]
        components.append({"shape": least, "places": places})
        cut = len(least) // 2
        halves = least[:cut], [0] * cut + least[cut:]
        # An observer of the counts of two components learns more than one of their sum.
        if draw.forges("draws") and draw.split and all(sum(half) > 1 for half in halves):
            components = []
            for half in halves:
                places = [[sum(half) - draw.every_count] for _ in groups]
                components.append({"shape": half, "places": places})
    forged = draw.one(0, 1, 1, 2, 3, 4, 5, 6) if draw.forges("blanket") else -1
    if forged == 0 and components:
        places = components[0]["places"]
        places[-1] = [places[-1][0] + draw.one(1, TOTAL // 7)]
    elif forged == 1:
        shape = list(rows[chosen[0]])
        places = [[TOTAL], *[[1] for _ in groups[1:]]]
        components = [{"shape": shape, "places": places}]
    elif forged == 2 and components:
        components[0]["places"] = components[0]["places"][:1]
    elif forged == 3 and components:
        components.append(components[0])
    elif forged == 4:
        components = [{"shape": [1, 1], "places": [[TOTAL] for _ in groups]}]
    elif forged == 5:
        components = [{"shape": list(laws[0]), "places": [[TOTAL] for _ in groups]}]
    return {"rows": chosen, "block": block, "components": components}


@dataclass(frozen=True)
class Part:
    """A component of a group's blanket: in how many draws it may come, and its chance in each."""

    group: int
    draws: int
    chance: Fraction


def parts_of(blankets: list[dict[str, Any]], counts: dict[int, int]) -> list[Part]:
    """The components that so many clients of each group draw from."""
    parts: list[Part] = []
    for group, count in sorted(counts.items()):
        times = count // blankets[group]["block"]
        if times > 0:
            for component in blankets[group]["components"]:
                chance = Fraction(sum(component["places"][0]), TOTAL)
                parts.append(Part(group, times, chance))
    return parts


def draws(draw: Draw, parts: list[Part]) -> dict[str, Any]:
    """A ladder or boxes, of components that come in so many draws at most."""
    if draw.every_count:
        return every_count(draw, parts)
    counts = [part.draws for part in parts]
    if parts and draw.chance(0.5 if draw.forges("draws") else 0.1):
        most = counts[0]
        edges = sorted({0, *(draw.integer(0, most + 1) for _ in range(draw.integer(0, 2)))})
        if draw.forges("draws") and draw.chance(0.3):
            edges = draw.one([0, 0], [1], edges[::-1], [0, most + 3], [])
        children = [draws(draw, parts[1:]) for _ in edges]
        return {"edges": edges, "children": children}
    corners: list[list[int]] = []
    reach = [draw.one(count, draw.integer(0, count)) for count in counts]
    if draw.chance(0.4 if draw.forges("draws") else 0.8):
        reach = list(counts)  # what is drawn for sure is there
    for _ in range(draw.integer(1, 3)):
        corners.append(list(reach))
        reach = [draw.integer(0, edge) for edge in reach]
    if draw.forges("draws") and draw.chance(0.3):
        corners = corners[::-1]
    if draw.forges("draws") and draw.chance(0.1) and counts:
        corners = [[*corner[:-1], corner[-1] + draw.integer(0, 2)] for corner in corners]
    return {"corners": corners}


def every_count(draw: Draw, parts: list[Part]) -> dict[str, Any]:
    """Every count of every component by itself: the noise is all that is certain, to the last unit.

    Then whatever a proof takes too much is below the truth. A proof costs as much as its worst case, so all
    cases are forged alike: the other components come in all draws instead of what is left of them
    ("full"), boxes are left out, or a ladder rises.
    """
    if not parts:
        return {"corners": [[]]}
    first, *others = parts
    whole = [part.draws for part in parts]
    if draw.boxes == "rising" and (first.chance == 1 or not others):
        # What is reached by the first corner is taken for what is reached by the last.
        return {"corners": [whole, [count + 1 for count in whole]]}
    if first.chance == 1:
        return {"corners": [whole]}
    if not others and draw.chance(0.3):
        return {"corners": [[count] for count in range(first.draws, -1, -1)]}
    edges = list(range(first.draws + 1))
    if draw.boxes == "first only":
        edges = edges[:1]
    elif draw.boxes == "no last":
        edges = edges[:-1] or edges
    elif draw.boxes == "no first":
        edges = edges[1:] or edges
    children: list[dict[str, Any]] = []
    for edge in edges:
        remaining: list[Part] = []
        for part in others:
            if part.group == first.group:
                still = part.draws if draw.boxes == "full" else part.draws - edge
                part = Part(part.group, still, part.chance / (1 - first.chance))
            remaining.append(part)
        children.append(every_count(draw, remaining))
    return {"edges": edges, "children": children}


def sums(draw: Draw) -> Trial:
    """Secure sums of up to four clients."""
    levels = draw.one(2, 2, 3)
    rows, good = draw.rows(levels, 2 + draw.chance(0.3))
    table = used(rows) if good else rows
    text, size = text_of(rows), len(table[0])
    lattice = list(range(size))
    if draw.chance(0.2) and size > 1:
        lattice[-1] += draw.integer(1, 2)
    clients = draw.integer(1, 4)
    if draw.every_count:
        clients = draw.one(2, 2, 3)
    corrupted = draw.integer(0, clients - 1) if draw.chance(0.4) or draw.forged == "others" else 0
    if draw.every_count:
        corrupted = 0
    more, epsilon = draw.common(), draw.epsilon()
    if draw.forged in ("draws", "others"):
        more, epsilon = {"rounds": 1}, draw.one(Fraction(0), Fraction(1, 10), Fraction(1))
    if more.get("sampling") == "poisson" and draw.chance(0.9):
        more = {"rounds": more["rounds"]}
    release = kernel.ExactRelease(
        observer="secure_sum", tables=((digest(text), 1),), clients=clients, corrupted=corrupted,
        lattice=tuple(lattice), **more,
    )  # fmt: skip
    honest, truth = clients - corrupted - 1, None
    if good:
        laws, worst = [law_of(row, lattice) for row in table], Fraction(0)
        for others in itertools.combinations_with_replacement(range(len(laws)), honest):
            noise = ALONE
            for row in others:
                noise = added(noise, laws[row])
            totals = [added(law, noise) for law in laws]
            pairs = list(itertools.product(totals, repeat=2))
            worst = max(worst, truth_of(release, epsilon, pairs, totals[:2]))
        truth = worst
    spread = [[0] * (lattice[-1] + 1) for _ in table]
    for index, row in enumerate(table):
        for integer, weight in zip(lattice, row, strict=True):
            spread[index][integer] = weight
    everyone = list(range(len(table)))
    alone = draw.forged == "division" and draw.chance(0.2)
    if alone:
        # As if all others had one row: the noise of a data set that need not be the worst.
        everyone = [draw.integer(0, len(table) - 1)]
    blankets = [blanket(draw, spread, everyone)]
    stated = honest
    if draw.forges("others"):
        stated = draw.one(honest + 1, clients - 1, clients, max(honest - 1, 0))
    cases: dict[str, Any] = draws(draw, parts_of(blankets, {0: stated}))
    divided = 0.8 if draw.forged in ("division", "draws", "others") else 0.3
    if len(table) > 1 and not alone and draw.chance(divided):
        cases = division(draw, spread, blankets, stated)
    proof: dict[str, Any] = {
        "kind": "sum", "tables": [text], "tail": draw.one(160, 160, 40, 6, 2, 1, 0), "blankets": blankets,
        "others": stated, "cases": cases,
    }  # fmt: skip
    if release.rounds > 1 or release.sampling == "poisson":
        step = draw.one(Fraction(1, 5), Fraction(1, 2), Fraction(1, 20))
        proof |= {"step": str(step), "grid": draw.grid(step)}
        if release.sampling != "none":
            proof["sampled"] = draw.grid(step)
    return Trial(release, epsilon, proof, truth)


def division(
    draw: Draw, spread: list[list[int]], blankets: list[dict[str, Any]], count: int
) -> dict[str, Any]:
    """Cases by the number of others with a row of a group; sometimes with a part or a row missing."""
    middle = draw.integer(1, len(spread) - 1)
    groups = [list(range(middle)), list(range(middle, len(spread)))]
    forged = draw.integer(0, 5) if draw.forges("division") else -1
    if forged in (0, 5):
        groups[1] = groups[0]
    blankets += [blanket(draw, spread, group) for group in groups]
    if forged == 1:
        blankets[0] = blankets[1]
    cuts = sorted({0, count + 1, *(draw.integer(0, count + 1) for _ in range(draw.integer(0, 2)))})
    if draw.forged in ("draws", "others") or draw.chance(0.5):
        cuts = list(range(count + 2))  # every count by itself
    if forged == 2 and len(cuts) > 2:
        cuts = cuts[:-1]
    elif forged == 3 and len(cuts) > 2:
        cuts = cuts[1:]
    elif forged == 4:
        cuts = [0, count]
    children: list[dict[str, Any]] = []
    for least, after in itertools.pairwise(cuts):
        counts = {0: after - 1 - least, 1: least, 2: count - (after - 1)}
        children.append(draws(draw, parts_of(blankets, counts)))
    return {"group": 0, "first": 1, "second": 2, "cuts": cuts, "children": children}


def ranks(draw: Draw) -> Trial:
    """Reports of an index from a table over ranks, as pure claims: the truth is 1 above the ratio's epsilon."""
    codewords = draw.integer(2, 6)
    top, low = draw.integer(1, codewords), draw.integer(1, 50)
    high, raised = draw.integer(1, 90), draw.integer(0, codewords - top)
    if draw.chance(0.4):
        raised = draw.integer(-3, codewords)
    entry: dict[str, Any] = {"M": codewords, "k": top, "w_hi": high, "w_lo": low, "r": raised}
    null: list[int] = []
    if draw.chance(0.4):
        null = [draw.integer(1, 40), draw.integer(1, 200)]
        entry["null"] = null
    weights = [high] * top + [low + 1] * max(raised, 0) + [low] * max(codewords - top - raised, 0)
    entry["T"] = top * high + raised * (low + 1) + (codewords - top - raised) * low + sum(null[:1])
    good = 0 <= raised <= codewords - top and top < codewords and high == max(weights)
    ratio = Fraction(high, low)
    if null:
        good = good and null[0] <= null[1] and codewords * low + null[1] == entry["T"]
        ratio = max(ratio, Fraction(null[1], null[0]))
    if draw.chance(0.1):
        entry["T"], good = entry["T"] + 1, False
    text = json.dumps(entry, sort_keys=True, separators=(",", ":"))
    release = kernel.ExactRelease(observer="reports", tables=((digest(text), 1),))
    with localcontext() as context:
        context.prec = 60
        log = (Decimal(ratio.numerator) / ratio.denominator).ln()
    epsilon = max(Fraction(log) * MARGIN, Fraction(0)) if good else Fraction(5)
    truth = Fraction(1) if good and ratio > 1 else None
    if good and ratio == 1:
        truth = Fraction(0)
    return Trial(release, epsilon, {"kind": "ratio", "tables": [], "ranks": [entry]}, truth)


BUILDERS: tuple[Callable[[Draw], Trial], ...] = (ranks, reports, reports, sums, sums, sums)


# Hunting --------------------------------------------------------------------------------------------------------


def attempt(trial: Trial, delta: Fraction, precision: int = 128) -> tuple[str, str]:
    """("accepted" | "refused" | "crash", the step or the error)."""
    statement = {"kind": "dp", "epsilon": str(trial.epsilon), "delta": str(delta)}
    claim = kernel.ExactClaim(release=trial.release, statement=statement)
    head = {"version": 1, "claim_sha256": claim.sha256, "precision": precision}
    try:
        kernel.check(claim, {**trial.proof, **head}, seconds=20)
    except kernel.Refused as error:
        return "refused", error.step
    except (kernel.Unreadable, kernel.Unfinished) as error:
        return "refused", type(error).__name__
    except Exception as error:  # any other error is a finding
        return "crash", repr(error)
    return "accepted", ""


def judge(trial: Trial) -> Finding | None:
    """A false acceptance or a crash of one trial."""
    outcome, step = attempt(trial, Fraction(0))
    if outcome == "crash":
        return Finding("CRASH", trial, step)
    if outcome == "accepted" and trial.truth != 0:
        return Finding("FALSE", trial, "delta 0 is below the truth")
    if trial.truth is None:
        # The tables are no distributions: every claim is false.
        outcome, step = attempt(trial, Fraction(999, 1000))
        if outcome != "refused":
            return Finding("FALSE", trial, f"{outcome}: a table that is no distribution")
        return None
    if trial.truth == 0 or (outcome == "refused" and step not in ("delta", "renyi")):
        return None
    below = trial.truth * MARGIN
    outcome, step = attempt(trial, below)
    if outcome == "crash":
        return Finding("CRASH", trial, step)
    if outcome == "accepted":
        return Finding("FALSE", trial, f"delta {float(below)!r} is below the truth")
    return None


def hunt(seed: int, seconds: float) -> tuple[int, Finding | None]:
    """Trials until the first finding or so many processor seconds: how many, and the finding."""
    draw, count, end = Draw(seed), 0, time.process_time() + seconds
    while time.process_time() < end:
        count += 1
        draw.begin()
        trial = draw.one(*BUILDERS)(draw)
        found = judge(trial)
        if found is not None:
            return count, found
    return count, None


def main(arguments: list[str]) -> int:
    seconds, seed = float(arguments[0]), int(arguments[1])
    started = time.process_time()
    count, found = hunt(seed, seconds)
    print(f"{count} trials in {time.process_time() - started:.1f} s, seed {seed}")
    if found is None:
        return 0
    print(found.kind, found.detail)
    print(found.trial)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
