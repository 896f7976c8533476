"""A ranked codebook: a vector becomes the index of one public random direction, under an exact pure epsilon.

Privacy rests only on the integers of its table over ranks (`RankTable`). `RankedSession` enforces the seed rule: seeds
by round and slot, one answer each, charged first.
"""

from __future__ import annotations

import hashlib
import json
import math
import operator
import os
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, final, get_args

import numpy as np
import numpy.typing as npt

from mezzotint.core.arguments import check_choice, check_count, check_finite, check_positive
from mezzotint.core.document import FORMAT, VERSION, parse_document
from mezzotint.core.errors import FileFormatError, InfeasibleError, ParameterError, wrong_kind
from mezzotint.core.files import AppendLog, read_text, write_text
from mezzotint.core.loss import exp_below, float_above
from mezzotint.core.mechanism import Mechanism
from mezzotint.core.records import JsonObject, above
from mezzotint.core.sampler import draw_words, key_from
from mezzotint.core.types import TOTAL, FloatArray, IntArray, Seed
from mezzotint.privacy.accounting import account, prove
from mezzotint.privacy.charges import Charge
from mezzotint.privacy.claim import Claim, Release, basis, counted
from mezzotint.privacy.ledger import Ledger
from mezzotint.privacy.propose import Outcome, propose_ranks
from mezzotint.privacy.verification import (
    MOST_INDICES,
    SEED_RULE,
    canonical_hash,
    check_ranks,
    log_above,
    table_ratio,
)
from mezzotint.vectors import codewords as codebooks
from mezzotint.vectors.codewords import KINDS, Codebook, Kind, gaussian_error, groups
from mezzotint.vectors.rotation import MAX_DIMENSION

if TYPE_CHECKING:
    from mezzotint import kernel

Norms = Literal["unit", "slack", "null"]

MOST_SEED = 2**64 - 1
LARGEST_REPORT = 2**63
"""Reports are signed 64-bit integers on the server."""
_PLACES = {"codewords": "M", "top": "k", "high": "w_hi", "low": "w_lo", "raised": "r"}
_CODEBOOK = ("kind", "dimension", "subspace", "norms", "clip_norm", "beacon")
"""Names of these fields in files (docs/file-format.md)."""


@final
@dataclass(frozen=True, kw_only=True)
class RankTable:
    """Weights of the places of an order, in units of 2**-32.

    Arguments:
        codewords: M >= 2, the places.
        top: k; the first k places have weight `high`.
        high, raised, low: the `raised` places after them have `low` + 1, all others `low`.
        null: weights of the null output, for the zero vector: (in the row above, in the row of a zero vector, where all
            codewords have `low`). None: no such output.

    Raises:
        ParameterError: integers that break a rule of `privacy.verification.table_ratio`.

    Guarantees: in any two orders of the codewords an output's probabilities differ at most by the factor `ratio`,
        exactly; two opposite orders reach it.
    Source: Theorem V (docs/proofs/vectors.md).
    """

    codewords: int
    top: int
    high: int
    raised: int
    low: int
    null: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        problems = table_ratio(self.as_dict())[1]
        if problems:
            raise ParameterError("table", f"{self.as_dict()}", "; ".join(problems))

    def as_dict(self) -> JsonObject:
        """Plain values for JSON, under the names of docs/file-format.md."""
        values: JsonObject = {short: getattr(self, name) for name, short in _PLACES.items()} | {
            "T": TOTAL
        }
        return values if self.null is None else {**values, "null": list(self.null)}

    @classmethod
    def from_dict(cls, table: JsonObject) -> RankTable:
        """The table that `as_dict` wrote."""
        null = table.get("null")
        places = {name: table[short] for name, short in _PLACES.items()}
        return cls(**places, null=None if null is None else (null[0], null[1]))

    @property
    def outputs(self) -> int:
        """The number of different outputs: codewords, and the null output if there is one."""
        return self.codewords + (self.null is not None)

    @cached_property
    def ratio(self) -> Fraction:
        """e**epsilon of one index, exactly."""
        ratio = table_ratio(self.as_dict())[0]
        assert ratio is not None  # checked when the table was made
        return ratio

    def rows(self) -> IntArray:
        """(1 or 2, outputs) weights by place, the null output last: of a unit vector, and the zero vector."""
        ranked = np.full(self.codewords, self.low, dtype=np.int64)
        ranked[: self.top] = self.high
        ranked[self.top : self.top + self.raised] += 1
        if self.null is None:
            return ranked[None, :]
        level = np.full(self.codewords, self.low, dtype=np.int64)
        return np.array([[*ranked, self.null[0]], [*level, self.null[1]]], dtype=np.int64)

    @cached_property
    def dominating(self) -> Mechanism:
        """A small table that loses as much as this one, for every measure of loss that grows with hockey-sticks.

        Its rows are an order, (with a null output) the zero vector's row, and the opposite order; outputs with equal
        weights in all rows are merged. Levels and knots are arbitrary.
        """
        rows = self.rows()
        opposite = rows[:1].copy()
        opposite[:, : self.codewords] = np.flip(opposite[:, : self.codewords])
        table = np.vstack([rows, opposite])
        merged: dict[tuple[int, ...], IntArray] = {}
        for column in table.T:
            kind = tuple(column.tolist())
            merged[kind] = merged.get(kind, np.zeros(len(kind), dtype=np.int64)) + column
        weights = np.array(list(merged.values()), dtype=np.int64).T
        knots, levels = (np.arange(size, dtype=np.float64) for size in weights.shape)
        return Mechanism(knots=knots, levels=levels, weights=weights, name="worst orders")


def rank_table(
    *, codewords: int, top: int, epsilon: float | Fraction, null: bool = False
) -> RankTable:
    """The table whose top k places have e**epsilon times the weight of the others, rounded so that it is never more.

    With `null`, there is an output for the zero vector. InfeasibleError if 2**-32 is too coarse for the epsilon.
    Guarantees: log(`ratio`) <= epsilon; without a null output short of it by less than a relative M / 2**32 e**epsilon.
    Source: extreme points of the linear program over tables of ranks (docs/proofs/vectors.md).
    """
    if not 1 <= top <= codewords // 2:
        raise ParameterError("top", top, f"between 1 and codewords // 2 = {codewords // 2}")
    ratio = _exp_below(epsilon)
    rest = codewords - top
    if null:
        # (k E + M - k - M / E) t = 1 - 1 / E makes the null output's two weights differ by the factor E as well.
        low = -(-TOTAL * (1 - 1 / ratio) // (top * ratio + rest - codewords / ratio))
        large = TOTAL - codewords * low
        small = -(-large // ratio)
    else:
        low, large, small = -(-TOTAL // (top * ratio + rest)), 0, 0
    low, small = int(low), int(small)
    left = TOTAL - small - rest * low
    high = min(int(ratio * low), left // top)
    raised = left - top * high
    if low < 1 or high < low or not 0 <= raised <= rest or (null and not 1 <= small <= large):
        raise InfeasibleError(
            f"epsilon={float(epsilon):g}: weights of 2**-32 are too coarse for {codewords} codewords; use fewer bits"
        )
    return RankTable(
        codewords=codewords,
        top=top,
        high=high,
        raised=raised,
        low=low,
        null=(small, int(large)) if null else None,
    )


def _exp_below(epsilon: float | Fraction) -> Fraction:
    """A rational at or below e**epsilon."""
    nearest = float(epsilon)
    # A float at or below a rational that is not a float.
    return exp_below(nearest if Fraction(nearest) <= epsilon else np.nextafter(nearest, 0.0))


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class RankedCodebook:
    """Vectors of L2 norm at most `clip_norm`, each reported as one integer.

    The client ranks public random codewords by their inner products with its vector and reports one of them: each of
    the k closest with e**epsilon times the probability of each other one. A seed determines the codewords: it is
    public, assigned by a rule that the client cannot influence (`RankedSession`), and used for only one report.

    Arguments:
        table: weights by rank.
        indices: the number of codewords, each of its own codebook, in one report; their epsilons add up.
        kind, subspace, beacon: of the `Codebook`.
        dimension: d.
        norms: "unit": vectors are scaled to the clipping norm, and the mean of directions is estimated. "slack": one
            more coordinate gives every vector norm 1; unbiased for all norms up to 1. "null": one more output, for the
            zero vector, reported the more often the shorter the vector; unbiased as well.
        clip_norm: longer vectors are scaled down to this norm, data units.
        name: for people.

    Raises:
        ParameterError: naming the argument that does not fit the others.

    Guarantees:
        `epsilon`: pure differential privacy of one report about the whole vector, for replacing it by any other one and
            every seed, exact up to rounding up. It rests on integers alone: floating point only chooses an order, and
            every order is covered.
        Unbiased over uniformly random seeds for vectors of norm at most `clip_norm` ("unit": of exactly that norm), but
            for `bias`.
        Random draws do not depend on the vector; all codewords are always ranked and sorted. The time that
            floating-point arithmetic takes is outside the claim.

    Source: docs/proofs/vectors.md.

    Example:
        >>> codebook = mz.vectors.ranked_codebook(100, 4.0, bits=8)
        >>> index = codebook.encode([1.0] + [0.0] * 99, seed=7)
        >>> codebook.epsilon <= 4.0, codebook.decode(index, 7).shape
        (True, (100,))
    """

    table: RankTable
    kind: Kind
    dimension: int
    norms: Norms
    indices: int = 1
    subspace: int | None = None
    clip_norm: float = 1.0
    beacon: str = ""
    name: str = "ranked codebook"

    def __post_init__(self) -> None:
        if check_count("dimension", self.dimension) > MAX_DIMENSION:
            raise ParameterError(
                "dimension", self.dimension, f"at most {MAX_DIMENSION}; split longer vectors"
            )
        check_choice("kind", self.kind, KINDS)
        check_choice("norms", self.norms, get_args(Norms))
        if (self.table.null is not None) != (self.norms == "null"):
            raise ParameterError(
                "norms",
                self.norms,
                'a table with a null output goes with "null", and no other does',
            )
        check_positive("clip_norm", self.clip_norm)
        if (
            check_count("indices", self.indices) > MOST_INDICES
            or self.table.outputs**self.indices > LARGEST_REPORT
        ):
            raise ParameterError(
                "indices", self.indices, f"at most {MOST_INDICES}, and reports below 2**63"
            )
        if "\0" in self.beacon:
            raise ParameterError("beacon", "text", "must not contain zero characters")
        self._check_codebook()

    def _check_codebook(self) -> None:
        most = {"S": self._size + 1, "X": 2 * self._size}.get(self.kind)
        if most is not None and self.table.codewords > most:
            remedy = (
                f"at most {most} of kind {self.kind} fit into {self._size} coordinates; use G or GX"
            )
            raise ParameterError("codewords", self.table.codewords, remedy)
        if self.kind in ("X", "GX") and self.table.codewords % 2:
            raise ParameterError(
                "codewords", self.table.codewords, "need an even number of +- pairs"
            )
        if self.subspace is not None:
            if self.kind in ("S", "X"):
                raise ParameterError("subspace", self.subspace, "only G and GX live in one")
            if check_count("subspace", self.subspace) > self._codebook.padded // 2:
                remedy = f"at most {self._codebook.padded // 2}, or None for all"
                raise ParameterError("subspace", self.subspace, remedy)

    @property
    def _size(self) -> int:
        return self.dimension + (self.norms == "slack")

    @cached_property
    def _codebook(self) -> Codebook:
        return Codebook(
            kind=self.kind,
            codewords=self.table.codewords,
            size=self._size,
            subspace=self.subspace,
            beacon=self.beacon,
        )

    # Privacy ---------------------------------------------------------------------------------------------------

    @cached_property
    def ratio(self) -> Fraction:
        """e**epsilon of one report, exactly."""
        return self.table.ratio**self.indices

    @cached_property
    def epsilon(self) -> float:
        """Pure epsilon of one report about the whole vector, rounded up."""
        return float_above(log_above(self.ratio))

    def account(self, release: Release) -> Claim:
        """The cost of one client's reports, each under a fresh seed.

        With trust="shuffler" each round's pairs of seed and report are seen in random order; seeds are then
        `own_seeds`, for an assigned one would name its client.

        Guarantees: the two opposite orders (with the zero vector's row) lose at least as much as any two inputs, for
            every hockey-stick divergence; they are accounted as a table (`RankTable.dominating`).
        """
        if (
            release.trust not in ("local", "shuffler")
            or release.sampling != "public"
            or release.dimension != 1
        ):
            remedy = "its reports are whole vectors, seen one by one or shuffled, with sampling='public', dimension=1"
            raise ParameterError("mechanism", self.name, remedy)
        claim = account(replace(release, mechanism=self.table.dominating, dimension=self.indices))
        if release.delta == 0 and release.trust == "local":
            claim = replace(claim, epsilon=min(claim.epsilon, self._pure(release.rounds)))
        vector = f"one vector of {counted(self.dimension, 'coordinate')}"
        return replace(claim, sha256=self.sha256, released=vector, release=release)

    def describes(self, exact: kernel.ExactRelease) -> bool:
        """Whether what the kernel checked is this table over ranks, with as many indices."""
        from mezzotint.kernel.units import canonical, sha256

        return exact.tables == ((sha256(canonical(self.table.as_dict())), self.indices),)

    def propose(self, release: Release, claim: Claim, *, seconds: int) -> Outcome | str:
        """A proof of the pure claim of all rounds."""
        if release.trust != "local" or release.delta > 0 or release.sampling_rate < 1:
            return (
                "proofs about ranked codebooks are pure: delta=0, each report seen, in every round"
            )
        return self.prove(rounds=release.rounds)

    def claim(self, *, delta: float = 0.0, **options: Any) -> Claim:
        """The claim of `account`, certified at delta = 0; `options` as there, such as rounds=3."""
        return prove(self, delta=delta, **options)[0]

    def _pure(self, rounds: int) -> float:
        """Pure epsilon of this many rounds, rounded up."""
        return float_above(rounds * log_above(self.ratio))

    def prove(self, *, rounds: int = 1) -> Outcome:
        """The pure claim of this many rounds, certified by the kernel, with its proof.

        Returns: `.claim`, `.proof`; `.text` is a claim file for `mezzotint verify`.
        """
        return propose_ranks(
            self.table.as_dict(), epsilon=self._pure(rounds), indices=self.indices, rounds=rounds
        )

    # Errors ----------------------------------------------------------------------------------------------------

    @cached_property
    def _moments(self) -> list[tuple[float, ...]]:
        """Of the rows of a unit vector and (with a null output) the zero vector, for weights that sum to 1."""
        rows = self.table.rows()[:, : self.table.codewords]
        return [tuple(value / TOTAL for value in self._codebook.moments(row)) for row in rows]

    @cached_property
    def scale(self) -> float:
        """The factor that turns a codeword into an unbiased estimate of x / clip_norm."""
        return self._codebook.compression / self._moments[0][0]

    def error(self, norm: float | None = None) -> float:
        """Mean squared error of one report's estimate, all coordinates together, squared data units.

        Arguments:
            norm: of the vector, 0 to `clip_norm`; None for `clip_norm`.
        """
        if norm is not None and not check_finite("norm", norm) >= 0:
            raise ParameterError("norm", norm, "need the norm of a vector, at least 0")
        rho = 1.0 if norm is None else min(1.0, norm / self.clip_norm)
        codebook, scaled = self._codebook, self.scale**2 / self.indices
        # Squares along the vector, and over all coordinates that the codebook has.
        alongs = [
            scaled * second * (codebook.width / codebook.padded) for _, second, _ in self._moments
        ]
        wholes = [scaled * total for _, _, total in self._moments]
        along, whole, mean = alongs[0], wholes[0], 1.0
        if self.norms == "null":
            along, whole, mean = (
                (1 - rho) * alongs[1] + rho * along,
                (1 - rho) * wholes[1] + rho * whole,
                rho,
            )
        # The average of `indices` estimates has the square of its mean beside the indices' share of the variance.
        along += (1 - 1 / self.indices) * mean**2
        whole += (1 - 1 / self.indices) * mean**2
        across = (whole - along) / max(1, codebook.padded - 1)
        if self.norms == "slack":
            error = along * rho**2 + across * (self.dimension - rho**2) - rho**2
        else:
            error = along + across * (self.dimension - 1) - mean**2
        return float(error) * self.clip_norm * self.clip_norm

    @property
    def mse(self) -> float:
        """`error` of a vector of the clipping norm: squared data units, all coordinates of one report."""
        return self.error()

    @cached_property
    def optimum(self) -> float:
        """The same error of PrivUnitG at this epsilon, which sends the whole vector in floating point."""
        return gaussian_error(self.dimension, self.epsilon) * self.clip_norm * self.clip_norm

    @property
    def bias(self) -> float:
        """Of the estimate, relative to the vector's norm, to first order in 1 / subspace; 0 without a subspace.

        Along the vector at most 1 / (4 subspace); in all sqrt(3 / 2) / subspace for one round's signs, less over many.
        """
        return 0.0 if self.subspace is None else math.sqrt(1.5) / self.subspace

    @property
    def reports(self) -> int:
        """The number of different reports, which are the integers from 0 up to it."""
        return self.table.outputs**self.indices

    @property
    def bits(self) -> int:
        """Bits of one report."""
        return (self.reports - 1).bit_length()

    # Reports ---------------------------------------------------------------------------------------------------

    def encode(self, vectors: Any, seed: Any, *, rng: Seed = None) -> Any:
        """One report per vector.

        Arguments:
            vectors: (d,) or (n, d) numbers in data units, numpy or torch. Entries that are not finite count as 0;
                longer vectors are scaled to `clip_norm`.
            seed: one integer from 0 to 2**64 - 1 for (d,), n different ones for (n, d). Public, and never derived from
                the vector nor chosen by the client; reports whose seeds share the upper 32 bits share a transform.
            rng: None draws from the operating system's keystream. A seed or `numpy.random.Generator` gives a
                reproducible draw, which is NOT private.

        Returns: an integer, or (n,) int64 (a tensor for a tensor).

        Raises:
            ParameterError: shapes or seeds that do not fit.

        Guarantees: as the class says. Encoding one vector twice under one seed costs epsilon twice: keep the report.
        """
        tensor = hasattr(vectors, "detach")
        values = np.asarray(vectors.detach().cpu().numpy() if tensor else vectors)
        if values.dtype.kind not in "fiu":
            raise wrong_kind("vectors", values, "fiu", "need real numbers")
        single = values.ndim == 1
        if values.ndim not in (1, 2) or values.shape[-1] != self.dimension:
            raise ParameterError(
                "vectors", str(values.shape), f"need (n, {self.dimension}) or ({self.dimension},)"
            )
        values = values[None, :] if single else values
        seeds = check_seeds([seed] if single else seed, values.shape[0])
        # Drawn before any vector is looked at.
        words = (
            draw_words(key_from(rng), 0, len(seeds) * self.indices)
            .reshape(-1, self.indices)
            .tolist()
        )
        reports = np.array(
            [self.report(*one) for one in zip(values, seeds, words, strict=True)], dtype=np.int64
        )
        if tensor:
            import torch

            found: Any = torch.from_numpy(reports)
            return found[0] if single else found
        return int(reports[0]) if single else reports

    def report(self, row: FloatArray, seed: int, words: Sequence[int]) -> int:
        """The report of one (d,) vector under given secret words, one of 64 bits per index.

        For conformance tests: the words reveal something about the vector.
        """
        from mezzotint.vectors import compiled as kernels

        codebook, table = self._codebook, self.table
        vector, values = np.zeros((1, codebook.padded)), np.ascontiguousarray(row, dtype=np.float64)
        slack = self.norms == "slack"
        rho = kernels.lift(values, float(self.clip_norm), slack, not slack, vector[0])
        codebook.transform(vector, seed >> 32)
        null_threshold = round(rho * TOTAL) if self.norms == "null" else TOTAL
        report = 0
        for place, word in enumerate(words):
            products = codebook.products(vector[0], seed, place)
            # Both rows' places are looked up, and one is taken: no branch on the vector.
            order = np.append(np.argsort(-products, kind="stable"), table.codewords)
            ranks = [
                int(np.searchsorted(edges, word & 0xFFFFFFFF, side="right"))
                for edges in self._edges
            ]
            zero = (word >> 32) >= null_threshold
            report = report * table.outputs + int(order[ranks[zero * (len(ranks) - 1)]])
        return report

    @cached_property
    def _edges(self) -> list[IntArray]:
        """Each row's cumulative weights by place; the place of a 32-bit word is the first whose edge is above it."""
        return list(np.cumsum(self.table.rows(), axis=1))

    # Estimates -------------------------------------------------------------------------------------------------

    def decode(self, report: int, seed: int) -> FloatArray:
        """(d,) unbiased estimate of the clipped vector behind one report, data units."""
        return self.mean([report], [seed])

    def mean(self, reports: Any, seeds: Any, *, weights: npt.ArrayLike | None = None) -> FloatArray:
        """Mean of the estimates of many reports, each in O(subspace), with one transform for each round.

        Arguments:
            reports: (n,) integers as `encode` returned them.
            seeds: (n,) the seeds they were encoded under.
            weights: (n,) numbers, public or part of nobody's data; the sum of weighted estimates is divided by their
                sum. None for 1 each.

        Returns: (d,) data units.

        Raises:
            ParameterError: reports that name no codeword, lengths that differ, weights that do not add up to a number
                other than 0.
        """
        codes = [operator.index(report) for report in np.asarray(reports).tolist()]
        if not codes:
            raise ParameterError("reports", "none", "need at least one")
        numbers = check_seeds(seeds, len(codes))
        if min(codes) < 0 or max(codes) >= self.reports:
            raise ParameterError("reports", "out of range", f"from 0 to {self.reports - 1}")
        shares = np.ones(len(codes)) if weights is None else np.asarray(weights, dtype=np.float64)
        if shares.shape != (len(codes),) or not np.isfinite(shares).all() or shares.sum() == 0:
            raise ParameterError(
                "weights", str(shares.shape), f"need {len(codes)} numbers whose sum is not 0"
            )
        codebook = self._codebook
        mean = np.zeros(self._size)
        for group, members in groups(numbers).items():
            total = np.zeros(codebook.padded)
            for i in members:
                for place, index in enumerate(self._split(codes[i])):
                    codebook.add(total, index, numbers[i], place, shares[i])
            mean += codebook.undo(total, group)
        return mean[: self.dimension] * (
            self.scale * self.clip_norm / (self.indices * shares.sum())
        )

    def _split(self, report: int) -> Iterable[int]:
        found: list[int] = []
        for _ in range(self.indices):
            report, index = divmod(report, self.table.outputs)
            found.append(index)
        return reversed(found)

    # Storage ---------------------------------------------------------------------------------------------------

    def _body(self) -> JsonObject:
        codebook = {name: getattr(self, name) for name in _CODEBOOK}
        return {
            "table": self.table.as_dict(),
            "indices": self.indices,
            "codebook": codebook
            | {"clip_norm": repr(float(self.clip_norm)), "stream": codebooks.VERSION},
            "seed_rule": SEED_RULE,
        }

    @cached_property
    def sha256(self) -> str:
        """Of table, codebook and seed rule."""
        return canonical_hash(self._body())

    def certificate(self) -> JsonObject:
        """The claim of one report as plain values: e**epsilon is (numerator / denominator)**indices."""
        numerator, denominator = self.table.ratio.as_integer_ratio()
        claim = {
            "epsilon": self.epsilon,
            "numerator": numerator,
            "denominator": denominator,
            "indices": self.indices,
        }
        return {**claim, "sha256": self.sha256, "neighboring": "replace_one", "unit": "report"}

    def to_json(self) -> str:
        """The mechanism file of kind "ranks" (docs/file-format.md)."""
        document = {"format": FORMAT, "version": VERSION, "kind": "ranks", "name": self.name}
        document |= {**self._body(), "sha256": self.sha256, "certificate": self.certificate()}
        return json.dumps(document, allow_nan=False, separators=(",", ":")) + "\n"

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write the file, atomically; an existing one is refused unless `overwrite`."""
        write_text(path, self.to_json(), overwrite=overwrite, parameter="path")

    @classmethod
    def from_json(cls, text: str) -> RankedCodebook:
        """Read what `to_json` wrote, after the exact check; FileFormatError for anything else."""
        document = parse_document(text)
        if document.get("kind") != "ranks":
            raise FileFormatError(
                'mechanism file: its kind is not "ranks"; load it with Mechanism.load'
            )
        problems = check_ranks(document)[2]
        if problems:
            raise FileFormatError(f"mechanism file: {'; '.join(problems)}")
        codebook = {name: document["codebook"][name] for name in _CODEBOOK}
        table, named = (
            RankTable.from_dict(document["table"]),
            {name: document[name] for name in ("indices", "name")},
        )
        try:
            scheme = cls(
                table=table, **named, **{**codebook, "clip_norm": float(codebook["clip_norm"])}
            )
        except ValueError as error:
            raise FileFormatError(f"mechanism file: {error}") from None
        if document["certificate"] != scheme.certificate():
            raise FileFormatError("mechanism file: the certificate is not that of the table")
        return scheme

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> RankedCodebook:
        """Read a mechanism file of kind "ranks"."""
        return cls.from_json(read_text(path))

    def __str__(self) -> str:
        words = {
            "unit": "directions only",
            "slack": "any norm, by a slack coordinate",
            "null": "any norm, by a null code",
        }
        where = (
            ""
            if self.subspace is None
            else f" in {self.subspace} of {self._codebook.padded} rotated coordinates"
        )
        many = f"{self.indices} indices of " if self.indices > 1 else ""
        relative = "unbiased" if self.subspace is None else f"relative bias at most {self.bias:.2g}"
        return (
            f"{self.name}: {many}{self.table.codewords} codewords ({KINDS[self.kind]}{where}), {self.table.top} on "
            f"top; {counted(self.bits, 'bit')} a vector of {counted(self.dimension, 'coordinate')} "
            f"({words[self.norms]}); epsilon {above(self.epsilon)} ({basis()}); "
            f"mean squared error {self.mse:.6g} a report, {self.mse / self.optimum:.4f} x PrivUnitG's; {relative}"
        )


def own_seeds(count: int) -> list[int]:
    """`count` seeds from the operating system's keystream, for reports that go through a shuffler.

    They are drawn independently of any vector, are sent with the reports, and name nobody. Each has a round of its own,
    and so, in a subspace, a transform: dense codebooks take the server the least time.

    Arguments:
        count: how many.

    Returns: 64-bit seeds.

    Example:
        >>> first, second = mz.vectors.own_seeds(2)
        >>> first != second
        True
    """
    return [int(word) for word in draw_words(key_from(None), 0, check_count("count", count))]


def check_seeds(seeds: Any, count: int) -> list[int]:
    """`count` different integers from 0 to 2**64 - 1."""
    try:
        numbers = [
            operator.index(seed) for seed in (seeds.tolist() if hasattr(seeds, "tolist") else seeds)
        ]
    except TypeError:
        raise ParameterError(
            "seed", type(seeds).__name__, "need integers, one per vector"
        ) from None
    if len(numbers) != count:
        raise ParameterError("seed", f"{len(numbers)} seeds", f"need one per vector, {count}")
    if any(not 0 <= number <= MOST_SEED for number in numbers):
        raise ParameterError("seed", "out of range", "from 0 to 2**64 - 1")
    if len(set(numbers)) < count:
        raise ParameterError("seed", "repeated", "every report needs a seed of its own")
    return numbers


def round_seeds(round_number: int, slots: Iterable[int]) -> npt.NDArray[np.uint64]:
    """The seeds of some slots of a round: round times 2**32 plus slot. Reports of one round share a transform.

    Arguments:
        round_number: 0 to 2**32 - 1.
        slots: 0 to 2**32 - 1; clients' slots must not depend on their vectors.

    Returns: (n,) uint64, one for each slot.

    Example:
        >>> mz.vectors.round_seeds(3, [0, 1]).tolist()
        [12884901888, 12884901889]
    """
    first = check_count("round_number", round_number, least=0, most=2**32 - 1) << 32
    numbers = [check_count("slot", slot, least=0, most=2**32 - 1) for slot in slots]
    return np.array([first + slot for slot in numbers], dtype=np.uint64)


@final
class RankedSession:
    """One client's answers. A client program should make its reports only through this class.

    Arguments:
        scheme: the codebook, whose beacon was public before any vector was fixed.
        client: the owner of the vectors, by its name in the ledger.
        ledger: charged before an answer is returned.
        budget: (epsilon, delta) that the client's releases may not exceed together.
        path: file of the answers given; None keeps them in memory, which a restart forgets.
        answers: round -> (slot, report, nonce) of answers that an earlier object gave and the caller kept (`answers`),
            for sessions without a file; they are put on the ledger.

    Guarantees:
        The client's program chooses no seed: a seed consists of round and slot, which the server assigns.
        One answer per round: asked again for the same round and slot, even after a crash or for another vector, the
            session returns the same report, and charges nothing more. Another slot of an answered round is refused.
        A report leaves only after it is on disk and charged. A second draw, where the first was lost, is charged
            separately even if its bits are the same, so that neither the ledger nor a refusal depends on the bits.

    Example:
        >>> from mezzotint.vectors import ranked_codebook
        >>> session = RankedSession(ranked_codebook(3, 1.0, 2), client="ann", ledger=Ledger(), budget=(2.0, 0.0))
        >>> first = session.answer([0.1, 0.2, 0.3], round_number=0, slot=17)
        >>> session.answer([0.3, 0.2, 0.1], round_number=0, slot=17) == first
        True
    """

    def __init__(
        self,
        scheme: RankedCodebook,
        *,
        client: str,
        ledger: Ledger,
        budget: tuple[float, float],
        path: str | os.PathLike[str] | None = None,
        answers: Mapping[int, tuple[int, int, str]] | None = None,
    ) -> None:
        self.scheme, self.client = scheme, client
        self._ledger, self._budget = ledger, budget
        self._answers: dict[int, tuple[int, int, str]] = dict(answers or {})
        for round_number, (slot, _, nonce) in self._answers.items():
            self._ledger.charge(self._release(round_number, slot, nonce))
        header = {
            "format": "mezzotint-ranked-answers",
            "version": 2,
            "sha256": scheme.sha256,
            "client": client,
        }
        self._log = AppendLog(path, header=header, take=self._take, what="file of answers")

    def _take(self, line: JsonObject) -> None:
        self._answers[line["round"]] = (line["slot"], line["report"], line["nonce"])

    @property
    def answers(self) -> dict[int, tuple[int, int, str]]:
        """round -> (slot, report, nonce of its draw) of every answer given."""
        self._log.refresh()
        return dict(self._answers)

    def answer(self, vector: npt.ArrayLike, *, round_number: int, slot: int) -> int:
        """The report for a question of the server.

        Arguments:
            vector: (d,) data units; ignored if the round was answered before.
            round_number, slot: as the server assigns them.

        Raises:
            ParameterError: the round was answered under another slot, or a vector of another shape.
            BudgetError: the report would not fit into the budget; nothing leaves.
            StorageError: the answer or its charge is not on disk; nothing leaves.
        """
        (seed,) = round_seeds(round_number, [slot]).tolist()
        with self._log.transaction() as append:
            known = self._answers.get(round_number)
            if known is not None and known[0] != slot:
                raise ParameterError(
                    "slot", slot, "this round was answered under another slot; one answer per round"
                )
            if known is None:
                report, nonce = (
                    int(self.scheme.encode(np.asarray(vector), seed)),
                    secrets.token_hex(16),
                )
                append({"round": round_number, "slot": slot, "report": report, "nonce": nonce})
            else:
                _, report, nonce = known
        # After a crash in between, the stored answer is charged now, before it leaves; otherwise it is charged already.
        self._ledger.reserve(self._release(round_number, slot, nonce), budget=self._budget)
        return report

    def _release(self, round_number: int, slot: int, nonce: str) -> Charge:
        """The charge of an answer; its fingerprint tells a repeated answer from a second draw, equal bits or not."""
        (seed,) = round_seeds(round_number, [slot]).tolist()
        scheme, client = self.scheme, self.client
        return Charge(
            identity=f"ranked {scheme.sha256[:16]} round {round_number} slot {slot} of {client}", client=client,
            epsilon=scheme.epsilon, delta=0.0, description=f"one index of {scheme.name}, {scheme.bits} bits",
            fingerprint=hashlib.sha256(f"{scheme.sha256} {seed} {nonce}".encode()).hexdigest(),
        )  # fmt: skip
