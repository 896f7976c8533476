"""A ranked codebook: a vector becomes the index of one public random direction.

Its epsilon is pure and exact: privacy rests only on the integers of its table over ranks
(`RankTable`). `RankedSession` enforces the seed rule: seeds by round and slot, one answer each,
charged first.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, final

import numpy as np
import numpy.typing as npt

from mezzotint.core.arguments import (
    check_count,
    check_finite,
    check_indices,
    check_positive,
)
from mezzotint.core.document import FORMAT, VERSION, parse_document
from mezzotint.core.errors import FileFormatError, ParameterError, as_array, as_reals, wrong_kind
from mezzotint.core.files import read_text, write_text
from mezzotint.core.kinds import checked
from mezzotint.core.loss import float_above
from mezzotint.core.records import JsonObject, above, counted
from mezzotint.core.sampler import draw_words, key_from
from mezzotint.core.types import TOTAL, AnyPath, FloatArray, IntArray, Seed
from mezzotint.privacy.accounting import account, prove
from mezzotint.privacy.claim import Claim, Release, basis
from mezzotint.privacy.propose import Outcome, propose_ranks, ranks_release
from mezzotint.privacy.verification import (
    MOST_INDICES,
    SEED_RULE,
    canonical_hash,
    check_ranks,
    log_above,
)
from mezzotint.vectors import codewords as codebooks
from mezzotint.vectors.codewords import KINDS, Codebook, Kind, Moments, gaussian_error, groups
from mezzotint.vectors.rank_table import RankTable
from mezzotint.vectors.rotation import MAX_DIMENSION
from mezzotint.vectors.seeds import check_seeds

if TYPE_CHECKING:
    from mezzotint import kernel

Norms = Literal["unit", "slack", "null"]

LARGEST_REPORT = 2**63
"""Reports are signed 64-bit integers on the server."""

_NORM_WORDS: dict[Norms, str] = {
    "unit": "directions only",
    "slack": "any norm, by a slack coordinate",
    "null": "any norm, by a null code",
}
_CODEBOOK_FIELDS = ("kind", "dimension", "subspace", "norms", "clip_norm", "beacon")
"""What a file says of the codebook (docs/file-format.md)."""

_HALF_WORD = 32
_LOW_HALF = 2**_HALF_WORD - 1
"""A secret word's lower half chooses the place, its upper half the row."""


@final
@checked
@dataclass(frozen=True, kw_only=True, eq=False)
class RankedCodebook:
    """Vectors of L2 norm at most `clip_norm`, each reported as one integer.

    The client ranks public random codewords by their inner products with its vector and reports one
    of them: each of the k closest with e**epsilon times the probability of each other one. A seed
    determines the codewords: it is public, assigned by a rule that the client cannot influence
    (`RankedSession`), and used for only one report.

    Arguments:
        table: weights by rank.
        indices: the number of codewords, each of its own codebook, in one report; their epsilons
            add up.
        kind, subspace, beacon: of the `Codebook`.
        dimension: d.
        norms: "unit": vectors are scaled to the clipping norm, and the mean of directions is
            estimated. "slack": one more coordinate gives every vector norm 1; unbiased for all
            norms up to 1. "null": one more output, for the zero vector, reported the more often the
            shorter the vector; unbiased as well.
        clip_norm: longer vectors are scaled down to this norm, data units.
        name: for people.

    Raises:
        ParameterError: naming the argument that does not fit the others.

    Guarantees:
        `epsilon`: pure differential privacy of one report about the whole vector, for replacing it
            by any other one and every seed, exact up to rounding up. It rests on integers alone:
            floating point only chooses an order, and every order is covered.
        Unbiased over uniformly random seeds for vectors of norm at most `clip_norm` ("unit": of
            exactly that norm), but for `bias`.
        Random draws do not depend on the vector; all codewords are always ranked and sorted. The
            time that floating-point arithmetic takes is outside the claim.

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
            remedy = f"at most {MAX_DIMENSION}; split longer vectors"
            raise ParameterError("dimension", self.dimension, remedy)
        if (self.table.null is not None) != (self.norms == "null"):
            remedy = 'a table with a null output goes with "null", and no other does'
            raise ParameterError("norms", self.norms, remedy)
        check_positive("clip_norm", self.clip_norm)
        check_count("indices", self.indices)
        if self.indices > MOST_INDICES or self.table.outputs**self.indices > LARGEST_REPORT:
            remedy = f"at most {MOST_INDICES}, and reports below 2**63"
            raise ParameterError("indices", self.indices, remedy)
        if "\0" in self.beacon:
            raise ParameterError("beacon", "text", "must not contain zero characters")
        self._check_codewords()
        self._check_subspace()

    def _check_codewords(self) -> None:
        count = self.table.codewords
        largest = {"S": self._size + 1, "X": 2 * self._size}.get(self.kind)
        if largest is not None and count > largest:
            fitting = f"at most {largest} of kind {self.kind} fit into {self._size} coordinates"
            raise ParameterError("codewords", count, f"{fitting}; use G or GX")
        if self.kind in ("X", "GX") and count % 2:
            raise ParameterError("codewords", count, "need an even number of +- pairs")

    def _check_subspace(self) -> None:
        if self.subspace is None:
            return
        if self.kind in ("S", "X"):
            raise ParameterError("subspace", self.subspace, "only G and GX live in one")
        largest = self._codebook.padded // 2
        if check_count("subspace", self.subspace) > largest:
            raise ParameterError("subspace", self.subspace, f"at most {largest}, or None for all")

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

    # Privacy

    @cached_property
    def ratio(self) -> Fraction:
        """e**epsilon of one report, exactly."""
        return self.table.ratio**self.indices

    @cached_property
    def epsilon(self) -> float:
        """Pure epsilon of one report about the whole vector, rounded up."""
        return float_above(log_above(self.ratio))

    @property
    def released(self) -> str:
        """A report, in the words of a claim."""
        return f"one vector of {counted(self.dimension, 'coordinate')}"

    def account(self, release: Release) -> Claim:
        """The cost of one client's reports, each under a fresh seed.

        With trust="shuffler" each round's pairs of seed and report are seen in random order; seeds
        are then `own_seeds`, for an assigned one would name its client.

        Guarantees: the two opposite orders (with the zero vector's row) lose at least as much as
            any two inputs, for every hockey-stick divergence; they are accounted as a table
            (`RankTable.dominating`).
        """
        seen_whole = release.trust in ("local", "shuffler")
        if not seen_whole or release.sampling != "public" or release.dimension != 1:
            remedy = (
                "its reports are whole vectors, seen one by one or shuffled, "
                "with sampling='public', dimension=1"
            )
            raise ParameterError("mechanism", self.name, remedy)
        tabled = replace(release, mechanism=self.table.dominating, dimension=self.indices)
        claim = account(tabled)
        if release.delta == 0 and release.trust == "local":
            epsilon = min(claim.epsilon, self._pure(release.rounds))
            claim = replace(claim, epsilon=epsilon)
        return replace(
            claim,
            sha256=self.sha256,
            released=release.released,
            release=release,
        )

    def exact(self, release: Release) -> kernel.ExactRelease | None:
        """Pure reports of its table over ranks, fresh in every round; the kernel has no words for
        others."""
        each_seen = release.trust == "local" and release.sampling_rate == 1
        if not each_seen or release.delta > 0 or release.distinct is not None:
            return None
        return ranks_release(
            self.table.as_dict(),
            indices=self.indices,
            rounds=release.rounds,
        )

    def propose(
        self,
        release: Release,
        claim: Claim,
        *,
        seconds: int,
    ) -> Outcome | str:
        """A proof of the pure claim of all rounds."""
        if self.exact(release) is None:
            return (
                "proofs about ranked codebooks are pure: delta=0, each report seen, "
                "drawn afresh in every round"
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
            self.table.as_dict(),
            epsilon=self._pure(rounds),
            indices=self.indices,
            rounds=rounds,
        )

    # Errors

    @cached_property
    def _moments(self) -> list[Moments]:
        """Of the rows of a unit vector and (with a null output) the zero vector.

        For weights that sum to 1.
        """
        moments_by_row: list[Moments] = []
        for row in self.table.rows():
            codeword_weights = row[: self.table.codewords]
            product, square, norm = self._codebook.moments(codeword_weights)
            moments_by_row.append(Moments(product / TOTAL, square / TOTAL, norm / TOTAL))
        return moments_by_row

    @cached_property
    def scale(self) -> float:
        """The factor that turns a codeword into an unbiased estimate of x / clip_norm."""
        unit_moments = self._moments[0]
        return self._codebook.compression / unit_moments.product

    def error(self, norm: float | None = None) -> float:
        """Mean squared error of one report's estimate, all coordinates together, squared data
        units.

        Arguments:
            norm: of the vector, 0 to `clip_norm`; None for `clip_norm`.
        """
        if norm is not None and not check_finite("norm", norm) >= 0:
            raise ParameterError("norm", norm, "need the norm of a vector, at least 0")
        length = 1.0
        if norm is not None:
            length = min(1.0, norm / self.clip_norm)
        along, total = self._squares(length)
        # The average of `indices` estimates has the square of its mean beside the indices' share of
        # the variance.
        mean = 1.0
        if self.norms == "null":
            mean = length
        mean_square = (1 - 1 / self.indices) * mean**2
        along += mean_square
        total += mean_square
        across = (total - along) / max(1, self._codebook.padded - 1)
        if self.norms == "slack":
            squared_length = length**2
            across_dimensions = self.dimension - squared_length
            error = along * squared_length + across * across_dimensions - squared_length
        else:
            error = along + across * (self.dimension - 1) - mean**2
        return float(error) * self.clip_norm * self.clip_norm

    def _squares(self, length: float) -> tuple[float, float]:
        """Mean squares of one estimate, over `indices`: along the vector, and of all coordinates.

        All coordinates are those that the codebook has; the vector has norm `length`, in clipping
        norms.
        """
        squared_scale = self.scale**2 / self.indices
        subspace_share = self._codebook.width / self._codebook.padded
        _, square, all_squares = self._moments[0]
        along = squared_scale * square * subspace_share
        total = squared_scale * all_squares
        if self.norms != "null":
            return along, total
        _, zero_square, all_zero_squares = self._moments[1]
        null_scale = (1 - length) * squared_scale
        along = null_scale * zero_square * subspace_share + length * along
        total = null_scale * all_zero_squares + length * total
        return along, total

    @property
    def mse(self) -> float:
        """`error` of a vector of the clipping norm: squared data units, all coordinates of one
        report."""
        return self.error()

    @cached_property
    def optimum(self) -> float:
        """The same error of PrivUnitG at this epsilon, which sends the whole vector in floating
        point."""
        return gaussian_error(self.dimension, self.epsilon) * self.clip_norm * self.clip_norm

    @property
    def bias(self) -> float:
        """Of the estimate, relative to the vector's norm, to first order in 1 / subspace; 0 without
        a subspace.

        Along the vector at most 1 / (4 subspace); in all sqrt(3 / 2) / subspace for one round's
        signs, less over many.
        """
        if self.subspace is None:
            return 0.0
        return math.sqrt(1.5) / self.subspace

    @property
    def reports(self) -> int:
        """The number of different reports, which are the integers from 0 up to it."""
        return self.table.outputs**self.indices

    @property
    def bits(self) -> int:
        """Bits of one report."""
        return (self.reports - 1).bit_length()

    # Reports

    def encode(self, vectors: Any, seed: Any, *, rng: Seed = None) -> Any:
        """One report per vector.

        Arguments:
            vectors: (d,) or (n, d) numbers in data units, numpy or torch. Entries that are not
                finite count as 0; longer vectors are scaled to `clip_norm`.
            seed: one integer from 0 to 2**64 - 1 for (d,), n different ones for (n, d). Public, and
                never derived from the vector nor chosen by the client; reports whose seeds share
                the upper 32 bits share a transform.
            rng: None draws from the operating system's keystream. A seed or
                `numpy.random.Generator` gives a reproducible draw, which is NOT private.

        Returns: an integer, or (n,) int64 (a tensor for a tensor).

        Raises:
            ParameterError: shapes or seeds that do not fit.

        Guarantees: as the class says. Encoding one vector twice under one seed costs epsilon twice:
            keep the report.
        """
        is_tensor = hasattr(vectors, "detach")
        if is_tensor:
            values = vectors.detach().cpu().numpy()
        else:
            values = as_array("vectors", vectors, "need real numbers, all vectors of one length")
        if np.ma.is_masked(vectors) or values.dtype.kind not in "fiu":
            raise wrong_kind("vectors", values, "fiu", "need real numbers")
        if values.ndim not in (1, 2) or values.shape[-1] != self.dimension:
            remedy = f"need (n, {self.dimension}) or ({self.dimension},)"
            raise ParameterError("vectors", str(values.shape), remedy)
        is_single = values.ndim == 1
        rows = values.reshape(-1, self.dimension)
        seeds = seed
        if is_single:
            seeds = [seed]
        reports = self._reports(rows, seeds, key_from(rng))
        if is_tensor:
            import torch

            tensor: Any = torch.from_numpy(reports)
            return tensor[0] if is_single else tensor
        return int(reports[0]) if is_single else reports

    def _reports(self, rows: npt.NDArray[Any], seeds: Any, key: bytes) -> IntArray:
        """(n,) reports of (n, d) vectors, with the secret words of a key."""
        public_seeds = check_seeds(seeds, len(rows))
        # Drawn before any vector is looked at.
        words = draw_words(key, 0, len(rows) * self.indices)
        words_by_row = words.reshape(-1, self.indices).tolist()
        reports = np.empty(len(rows), dtype=np.int64)
        for index, row in enumerate(rows):
            reports[index] = self.report(row, public_seeds[index], words_by_row[index])
        return reports

    def report(self, row: FloatArray, seed: int, words: Sequence[int]) -> int:
        """The report of one (d,) vector under given secret words, one of 64 bits per index.

        For conformance tests: the words reveal something about the vector.
        """
        from mezzotint.vectors import compiled as kernels

        codebook = self._codebook
        lifted = np.zeros((1, codebook.padded))
        vector = np.ascontiguousarray(row, dtype=np.float64)
        has_slack = self.norms == "slack"
        norm = kernels.lift(vector, float(self.clip_norm), has_slack, not has_slack, lifted[0])
        codebook.transform(lifted, seed >> _HALF_WORD)
        null_threshold = TOTAL
        if self.norms == "null":
            null_threshold = round(norm * TOTAL)
        report = 0
        for position, word in enumerate(words):
            products = codebook.products(lifted[0], seed, position)
            ranking = np.argsort(-products, kind="stable")
            outputs = np.append(ranking, self.table.codewords)
            # Both rows' ranks are looked up, and one is taken: no branch on the vector.
            low_half = word & _LOW_HALF
            ranks = [self._rank(edges, low_half) for edges in self._edges]
            is_null = (word >> _HALF_WORD) >= null_threshold
            rank = ranks[is_null * (len(ranks) - 1)]
            report = report * self.table.outputs + int(outputs[rank])
        return report

    @staticmethod
    def _rank(edges: IntArray, number: int) -> int:
        """The first place whose edge is above a 32-bit number."""
        return int(np.searchsorted(edges, number, side="right"))

    @cached_property
    def _edges(self) -> list[IntArray]:
        """Each row's cumulative weights by place."""
        cumulated = np.cumsum(self.table.rows(), axis=1)
        return list(cumulated)

    # Estimates

    @checked
    def decode(self, report: int, seed: int) -> FloatArray:
        """(d,) unbiased estimate of the clipped vector behind one report, data units."""
        return self.mean([report], [seed])

    def mean(
        self,
        reports: Any,
        seeds: Any,
        *,
        weights: npt.ArrayLike | None = None,
    ) -> FloatArray:
        """Mean of the estimates of many reports, each in O(subspace), with one transform for each
        round.

        Arguments:
            reports: (n,) integers as `encode` returned them.
            seeds: (n,) the seeds they were encoded under.
            weights: (n,) numbers, public or part of nobody's data; the sum of weighted estimates is
                divided by their sum. None for 1 each.

        Returns: (d,) data units.

        Raises:
            ParameterError: reports that name no codeword, lengths that differ, weights that do not
                add up to a number other than 0.
        """
        checked_reports = check_indices("reports", reports, self.reports)
        if checked_reports.ndim != 1 or checked_reports.size == 0:
            raise ParameterError("reports", checked_reports.shape, "need one or more, one per seed")
        codes: list[int] = checked_reports.tolist()
        public_seeds = check_seeds(seeds, len(codes))
        shares = np.ones(len(codes))
        if weights is not None:
            shares = as_reals("weights", weights, f"need {len(codes)} numbers")
        if shares.shape != (len(codes),) or not np.isfinite(shares).all() or shares.sum() == 0:
            remedy = f"need {len(codes)} numbers whose sum is not 0"
            raise ParameterError("weights", str(shares.shape), remedy)
        codebook = self._codebook
        total = np.zeros(self._size)
        for round_number, members in groups(public_seeds).items():
            round_total = np.zeros(codebook.padded)
            for member in members:
                seed = public_seeds[member]
                for position, index in enumerate(self._split(codes[member])):
                    codebook.add(round_total, index, seed, position, shares[member])
            total += codebook.undo(round_total, round_number)
        factor = self.scale * self.clip_norm / (self.indices * shares.sum())
        return total[: self.dimension] * factor

    def _split(self, report: int) -> list[int]:
        """The indices of a report, first to last: its digits in base `table.outputs`."""
        indices: list[int] = []
        for _ in range(self.indices):
            report, index = divmod(report, self.table.outputs)
            indices.append(index)
        return indices[::-1]

    # Storage

    def _body(self) -> JsonObject:
        codebook: JsonObject = {name: getattr(self, name) for name in _CODEBOOK_FIELDS}
        codebook["clip_norm"] = repr(float(self.clip_norm))
        codebook["stream"] = codebooks.VERSION
        return {
            "table": self.table.as_dict(),
            "indices": self.indices,
            "codebook": codebook,
            "seed_rule": SEED_RULE,
        }

    @cached_property
    def sha256(self) -> str:
        """Of table, codebook and seed rule."""
        return canonical_hash(self._body())

    def certificate(self) -> JsonObject:
        """The claim of one report as plain values: e**epsilon is (numerator / denominator)**indices."""
        numerator, denominator = self.table.ratio.as_integer_ratio()
        return {
            "epsilon": self.epsilon,
            "numerator": numerator,
            "denominator": denominator,
            "indices": self.indices,
            "sha256": self.sha256,
            "neighboring": "replace_one",
            "unit": "report",
        }

    def to_json(self) -> str:
        """The mechanism file of kind "ranks" (docs/file-format.md)."""
        document = {
            "format": FORMAT,
            "version": VERSION,
            "kind": "ranks",
            "name": self.name,
            **self._body(),
            "sha256": self.sha256,
            "certificate": self.certificate(),
        }
        return json.dumps(document, allow_nan=False, separators=(",", ":")) + "\n"

    def save(self, path: AnyPath, *, overwrite: bool = False) -> None:
        """Write the file, atomically; an existing one is refused unless `overwrite`."""
        write_text(path, self.to_json(), overwrite=overwrite, parameter="path")

    @classmethod
    def from_json(cls, text: str | bytes) -> RankedCodebook:
        """Read what `to_json` wrote, after the exact check; FileFormatError for anything else."""
        document = parse_document(text)
        if document.get("kind") != "ranks":
            remedy = "load it with Mechanism.load"
            raise FileFormatError(f'mechanism file: its kind is not "ranks"; {remedy}')
        problems = check_ranks(document)[2]
        if problems:
            raise FileFormatError(f"mechanism file: {'; '.join(problems)}")
        fields: JsonObject = {name: document["codebook"][name] for name in _CODEBOOK_FIELDS}
        fields["clip_norm"] = float(fields["clip_norm"])
        try:
            scheme = cls(
                table=RankTable.from_dict(document["table"]),
                indices=document["indices"],
                name=document["name"],
                **fields,
            )
        except ValueError as error:
            raise FileFormatError(f"mechanism file: {error}") from None
        if document["certificate"] != scheme.certificate():
            raise FileFormatError("mechanism file: the certificate is not that of the table")
        return scheme

    @classmethod
    def load(cls, path: AnyPath) -> RankedCodebook:
        """Read a mechanism file of kind "ranks"."""
        return cls.from_json(read_text(path))

    def __str__(self) -> str:
        several = ""
        if self.indices > 1:
            several = f"{self.indices} indices of "
        subspace = ""
        bias = "unbiased"
        if self.subspace is not None:
            subspace = f" in {self.subspace} of {self._codebook.padded} rotated coordinates"
            bias = f"relative bias about {self.bias:.2g}"
        vector = f"a vector of {counted(self.dimension, 'coordinate')} ({_NORM_WORDS[self.norms]})"
        error = f"mean squared error {self.mse:.6g} a report"
        comparison = f"{self.mse / self.optimum:.4f} x PrivUnitG's"
        return (
            f"{self.name}: {several}{self.table.codewords} codewords ({KINDS[self.kind]}{subspace}), "
            f"{self.table.top} on top; {counted(self.bits, 'bit')} {vector}; "
            f"epsilon {above(self.epsilon)} ({basis()}); {error}, {comparison}; {bias}"
        )
