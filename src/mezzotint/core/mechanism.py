"""The one idea of this package: a scalar mechanism is a table of integers; and its file.

The file is JSON with a schema version, the table, its hash, and the certificate its maker claims.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from dataclasses import dataclass, fields
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeGuard, TypeVar, cast

import numpy as np
import numpy.typing as npt

from mezzotint.core import loss as losses
from mezzotint.core.errors import FileFormatError, ParameterError, as_reals, refuse_nan, wrong_kind
from mezzotint.core.loss import TOTAL as TOTAL
from mezzotint.core.loss import Certificate, certify
from mezzotint.core.loss import FloatArray as FloatArray
from mezzotint.core.loss import IntArray as IntArray
from mezzotint.core.loss import NumberArray as NumberArray
from mezzotint.core.records import Json, JsonObject, html_of

if TYPE_CHECKING:
    from mezzotint.core.priors import Prior
    from mezzotint.core.sampler import PrivatizeStats


# Imported where they are used: `files`, which most programs never need; `priors` and `sampler`, which are heavy (numba,
# scipy) and built upon this module.

Scalar = TypeVar("Scalar", np.float64, np.int64)

MAX_LEVELS = 2**16
"""More levels than this do not fit the 16-bit codes."""

Seed: TypeAlias = "int | np.random.Generator | None"
"""None draws from the system's generator, privately; a seed or a Generator is reproducible and NOT private."""

NARROWEST = 2.0**-900
"""Distinct knots are at least this far apart, so that 2**32 / width is a finite float."""


def _owned(values: NumberArray, dtype: type[Scalar]) -> npt.NDArray[Scalar]:
    """A read-only copy in C order; adding zero turns -0.0 into 0.0, so that equal tables hash equally."""
    array = np.array(values, dtype=dtype, order="C", copy=True)
    np.add(array, 0, out=array)
    array.setflags(write=False)
    return array


def _array(parameter: str, values: npt.ArrayLike, kinds: str, remedy: str) -> NumberArray:
    """`values` as an array whose dtype is one of `kinds`; text that looks like a number is not a number."""
    try:
        array = np.asarray(values)
    except ValueError:
        raise ParameterError(
            parameter, type(values).__name__, "rows differ in length; give a rectangular array"
        ) from None
    if array.size and array.dtype.kind not in kinds:
        raise wrong_kind(parameter, array, kinds, remedy)
    return array


def _check_knots(knots: FloatArray) -> None:
    if knots.ndim != 1 or knots.size < 2:
        raise ParameterError(
            "knots", knots.tolist(), "need a 1-D sequence of at least 2 inputs, lower and upper"
        )
    if not np.isfinite(knots).all():
        raise ParameterError("knots", knots.tolist(), "every knot must be finite")
    with np.errstate(over="ignore"):
        steps = np.diff(knots)
        spread = knots[-1] - knots[0]
    near = not np.isfinite(spread) or ((steps > 0) & (steps < NARROWEST)).any()
    for wrong, remedy in (
        (
            near,
            f"upper - lower overflows or knots are closer than {NARROWEST:.1g}; rescale the data",
        ),
        ((steps < 0).any(), "knots must be sorted; sort them with their rows"),
        (
            steps[0] == 0 or steps[-1] == 0,
            "no jump can be at lower or upper: drop the row never drawn",
        ),
        (
            ((steps[:-1] == 0) & (steps[1:] == 0)).any(),
            "a knot may stand at most twice: drop the rows in the middle",
        ),
    ):
        if wrong:
            raise ParameterError("knots", knots.tolist(), remedy)


def _check_levels(levels: FloatArray) -> None:
    if levels.ndim != 1:
        raise ParameterError("levels", levels.shape, "need a 1-D sequence of decoded outputs")
    if levels.size < 2:
        raise ParameterError("levels", levels.size, "need at least 2 output levels; try levels=4")
    if levels.size > MAX_LEVELS:
        raise ParameterError(
            "levels", levels.size, f"at most {MAX_LEVELS} levels fit a 16-bit code"
        )
    if not np.isfinite(levels).all():
        raise ParameterError("levels", levels.tolist(), "every level must be finite")
    if (np.diff(levels) <= 0).any():
        raise ParameterError(
            "levels", levels.tolist(), "levels must increase strictly; sort them, drop duplicates"
        )


OTHER, MISSING = "(other)", "(missing)"
"""Categories for values that no other category names, and for missing values."""


def category_name(value: object) -> str:
    """A category as text: text as it is, true and false, or an integer's digits."""
    if isinstance(value, (bool, np.bool_)):
        return "true" if value else "false"
    if isinstance(value, str):
        return value
    if isinstance(value, (int, np.integer)):
        return str(int(cast(int, value)))
    raise ParameterError(
        "categories", type(value).__name__, "a category is text, an integer, or true or false"
    )


def _check_categories(categories: tuple[str, ...], knots: FloatArray) -> None:
    if len(set(categories)) != len(categories) or not all(
        isinstance(cast(object, one), str) for one in categories
    ):
        raise ParameterError("categories", ", ".join(map(str, categories)), "need distinct text")
    if knots.tolist() != list(range(len(categories))):
        raise ParameterError(
            "knots", knots.tolist(), "category i has the row of knot i: 0, 1, 2, ..."
        )


def cdf_variance(rows: FloatArray, shares: FloatArray) -> float:
    """n times the variance of an efficient estimate of the distribution function, averaged over the inner edges.

    The rows (K, m) are the pmfs of a report from each cell, `shares` (K,) the cells' true shares. inf where reports do
    not tell the cells apart, whatever their number.
    """
    pmf = shares @ rows
    used = pmf > 0
    information = (rows[:, used] / pmf[used]) @ rows[:, used].T
    below = np.tri(shares.size)[:-1]
    if (
        np.linalg.matrix_rank(information, tol=1e-11 * float(information.trace()), hermitian=True)
        < shares.size
    ):
        return math.inf
    inner = below @ np.linalg.solve(information, below.T)
    return float((inner.trace() - ((below @ shares) ** 2).sum()) / len(below))


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Mechanism:
    """A scalar mechanism as a table: inputs (knots), outputs (levels) and integer probabilities (weights).

    An input is clipped to [lower, upper]. Between two knots one of their two rows is picked at random,
    row k+1 with probability t = (x - knots[k]) / (knots[k+1] - knots[k]), and one level is drawn from that row.

    Arguments:
        knots: (K+1,) sorted inputs in data units; the first is `lower`, the last is `upper`. A knot that stands
            twice is a jump: its first row holds just below it, its second row from it on.
        levels: (m,) strictly increasing decoded outputs in data units, 2 <= m <= 65536.
        weights: (K+1, m) integers >= 0, every row sums to exactly 2**32; row k is the pmf at knots[k].
        name: free text that describes the table.
        categories: names of the categories, where inputs are categories: category i is the input i, the knots are
            0, 1, 2, ..., and levels are indices of reports rather than values. None for numeric inputs.

    Raises:
        ParameterError: naming the parameter, its value and the remedy, when a table is not one.

    Guarantees:
        Frozen: the arrays are read-only copies.
        Every number it gives about privacy is a worst case over all pairs of inputs (docs/proofs/tables.md, T2)
        and overstates, never understates.
        Equality and hash are those of the table; the name does not count.

    Source: math notes T1-T6 (docs/proofs/tables.md).
    """

    knots: FloatArray
    levels: FloatArray
    weights: IntArray
    name: str = "table"
    categories: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        knots = _owned(_array("knots", self.knots, "iuf", "knots are real numbers"), np.float64)
        levels = _owned(_array("levels", self.levels, "iuf", "levels are real numbers"), np.float64)
        _check_knots(knots)
        _check_levels(levels)
        remedy = "weights are integers; mezzotint.core.rounding turns probabilities into them"
        raw = _array("weights", self.weights, "iu", remedy)
        if raw.shape != (knots.size, levels.size):
            remedy = f"need one row per knot and one column per level: {(knots.size, levels.size)}"
            raise ParameterError("weights", raw.shape, remedy)
        losses.check_weights(raw)
        if not isinstance(cast(object, self.name), str):
            raise ParameterError("name", repr(self.name), "a name is text")
        if self.categories is not None:
            object.__setattr__(self, "categories", tuple(self.categories))
            _check_categories(self.categories, knots)
        object.__setattr__(self, "knots", knots)
        object.__setattr__(self, "levels", levels)
        object.__setattr__(self, "weights", _owned(raw, np.int64))

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Checks a copy like any table: its arrays are read-only, and what follows from them is computed anew."""
        self.__init__(**{field.name: state[field.name] for field in fields(self)})

    # What the table is ---------------------------------------------------------------------------------------

    @property
    def lower(self) -> float:
        """Smallest input, data units; smaller inputs are clipped to it."""
        return float(self.knots[0])

    @property
    def upper(self) -> float:
        """Largest input, data units; larger inputs are clipped to it."""
        return float(self.knots[-1])

    @property
    def bits(self) -> int:
        """Bits of one report: ceil(log2 m)."""
        return (self.levels.size - 1).bit_length()

    @cached_property
    def sha256(self) -> str:
        """SHA-256 (hex) of the canonical JSON of knots, levels and weights, and of the categories if there are any."""
        return hashlib.sha256(self.canonical().encode("ascii")).hexdigest()

    def canonical(self) -> str:
        """The table as canonical JSON: fixed key order, no spaces, shortest round-trip decimals."""
        return json.dumps(_content(self), separators=(",", ":"), allow_nan=False)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Mechanism) and self.sha256 == other.sha256

    def __hash__(self) -> int:
        return hash(self.sha256)

    def __repr__(self) -> str:
        return (
            f"Mechanism(name={self.name!r}, lower={self.lower:g}, upper={self.upper:g}, "
            f"levels={self.levels.size}, knots={self.knots.size}, sha256={self.sha256[:12]!r})"
        )

    def _repr_html_(self) -> str:
        """A table, for notebooks."""
        told: JsonObject = {"inputs": [self.lower, self.upper], "levels": self.levels.tolist()}
        if self.categories is not None:
            told = {"categories": list(self.categories), "reports": self.levels.size}
        known = {"rows": self.knots.size, "bits": self.bits, "certificate": str(self.certificate())}
        return html_of({"name": self.name, **told, **known})

    # What it does to an input --------------------------------------------------------------------------------

    @cached_property
    def probabilities(self) -> FloatArray:
        """(K+1, m) float64 rows: weights / 2**32, exact (integers below 2**53 over a power of two)."""
        rows = self.weights / float(TOTAL)
        rows.setflags(write=False)
        return rows

    def locate(self, x: npt.ArrayLike) -> tuple[npt.NDArray[np.intp], FloatArray]:
        """Segment index k and position t in [0, 1] of each clipped input, any shape; NaN raises ParameterError."""
        values = as_reals("x", x, "need real numbers")
        refuse_nan("x", values)
        clipped = np.clip(values, self.lower, self.upper)
        segment = np.minimum(
            np.searchsorted(self.knots, clipped, side="right") - 1, self.knots.size - 2
        )
        left, right = self.knots[segment], self.knots[segment + 1]
        return segment, (clipped - left) / (right - left)

    def _interpolate(self, values_at_knots: FloatArray, x: npt.ArrayLike) -> FloatArray:
        segment, t = self.locate(x)
        t = t.reshape(t.shape + (1,) * (values_at_knots.ndim - 1))
        return (1 - t) * values_at_knots[segment] + t * values_at_knots[segment + 1]

    def pmf(self, x: npt.ArrayLike) -> FloatArray:
        """Probabilities of the m levels at inputs x of any shape: (..., m) float64. NaN raises; the rest clips."""
        return self._interpolate(self.probabilities, x)

    def mean(self, x: npt.ArrayLike) -> FloatArray:
        """Expected decoded report at inputs x, data units, shape of x. Equals clipped x up to `max_bias`."""
        return self._interpolate(self.probabilities @ self.levels, x)

    def variance(self, x: npt.ArrayLike) -> FloatArray:
        """Variance of the decoded report at inputs x, squared data units, shape of x."""
        # Centred before squaring: E B^2 - (E B)^2 would cancel where levels are far from 0.
        deviation = self.levels - self.mean(x)[..., None]
        return np.einsum("...i,...i->...", self.pmf(x), deviation**2)

    @cached_property
    def frequency_decoders(self) -> FloatArray:
        """(m, K+1) numbers: the mean of column k over the reports is unbiased for the share of inputs at knot k.

        Of all such decoders, the one of least variance when the knots are equally frequent (Aitken). It is meaningful
        where inputs are knots, as categories are.

        Raises:
            ParameterError: the rows are linearly dependent, so that reports do not determine the frequencies.
        """
        rows = self.probabilities
        shares = rows.mean(axis=0)
        weighed = np.divide(rows, shares, out=np.zeros_like(rows), where=shares > 0)
        gram = weighed @ rows.T
        if np.linalg.matrix_rank(gram, hermitian=True) < gram.shape[0]:
            remedy = (
                "are linearly dependent: reports cannot tell the inputs apart; use another table"
            )
            raise ParameterError("weights", f"{gram.shape[0]} rows", remedy)
        return np.asarray(weighed.T @ np.linalg.inv(gram), dtype=np.float64)

    @cached_property
    def exact_max_bias(self) -> Fraction:
        """sup over inputs of |E[decoded] - x| as a rational. Piecewise linear in x, so it sits at a knot (T4)."""
        # Floats are dyadic: over one common power of two the row means are integer sums.
        ratios = [float(level).as_integer_ratio() for level in self.levels]
        scale = max(denominator for _, denominator in ratios)
        integers = [numerator * (scale // denominator) for numerator, denominator in ratios]
        worst = Fraction(0)
        for knot, row in zip(self.knots.tolist(), self.weights.tolist(), strict=True):
            total = sum(weight * integer for weight, integer in zip(row, integers, strict=True))
            worst = max(worst, abs(Fraction(total, scale * TOTAL) - Fraction(knot)))
        return worst

    @property
    def max_bias(self) -> float:
        """`exact_max_bias` as a float, rounded up; data units."""
        return losses.float_above(self.exact_max_bias)

    def mse(self, prior: object = None) -> float:
        """Mean squared error of the decoded report, squared data units, averaged over the inputs of `prior`.

        Arguments:
            prior: None for uniform on [lower, upper], a frozen scipy.stats distribution, or a 1-D sample (NaN raises).
                Inputs outside [lower, upper] count as clipped: the error is against the clipped input.

        Source: T6; exact for uniform and sample priors, quadrature to about 1e-13 otherwise.
        """
        return self._expected_loss("mse", prior)

    def mae(self, prior: object = None) -> float:
        """Mean absolute error of the decoded report, data units; `prior` as for `mse`."""
        return self._expected_loss("mae", prior)

    def cdf_error(self, cells: int, prior: object = None) -> float:
        """Root of n times the variance of the estimated distribution function of n reports' inputs.

        Arguments:
            cells: of the range, even ones; averaged over their inner edges. Inputs count as the middle of their cell.
            prior: as for `mse`; no cell is taken as rarer than 1e-6.

        Returns: inf where the table does not tell the cells apart.
        """
        if not isinstance(cast("object", cells), (int, np.integer)) or cells < 1:
            raise ParameterError("cells", cells, "need a number of cells, at least 1")
        edges = np.linspace(self.lower, self.upper, int(cells) + 1)
        shares = np.maximum(self._prior(prior).moments(edges)[:, 0], 1e-6)
        return math.sqrt(
            cdf_variance(self.pmf((edges[1:] + edges[:-1]) / 2), shares / shares.sum())
        )

    def worst_mse(self) -> float:
        """The largest mean squared error over all inputs, squared data units."""
        # On a segment the error is quadratic in the position t: E B^2 and E B are linear in t.
        left, right = self.knots[:-1], self.knots[1:]
        apart = right > left
        p, q = self.probabilities[:-1][apart], self.probabilities[1:][apart]
        left, right = left[apart], right[apart]

        def error(t: float) -> FloatArray:
            x = left + t * (right - left)
            return (((1 - t) * p + t * q) * (self.levels - x[:, None]) ** 2).sum(axis=1)

        start, middle, end = error(0.0), error(0.5), error(1.0)
        curvature = 2 * (start + end) - 4 * middle
        slope = end - start - curvature
        with np.errstate(divide="ignore", invalid="ignore"):
            top = np.where(curvature < 0, -slope / (2 * curvature), 0.0)
        t = np.clip(np.nan_to_num(top), 0.0, 1.0)
        return float(np.max([start, end, start + slope * t + curvature * t * t]))

    def _prior(self, prior: object) -> Prior:
        from mezzotint.core.priors import as_prior

        return as_prior(prior, lower=self.lower, upper=self.upper)

    def _expected_loss(self, loss: Literal["mse", "mae"], prior: object) -> float:
        from mezzotint.core.priors import cost_matrix

        table = cost_matrix(
            knots=self.knots, levels=self.levels, prior=self._prior(prior), loss=loss
        )
        return float((table * self.probabilities).sum())

    # Reports -------------------------------------------------------------------------------------------------

    def privatize(
        self, x: Any, rng: Seed = None, *, on_out_of_range: Literal["clip", "error"] = "clip"
    ) -> Any:
        """Draws one report per input: codes 0..m-1, uint8 up to 256 levels else uint16, same shape as x.

        Arguments:
            x: numbers in data units: scalar, numpy array (float32/64; integers are cast) or torch tensor.
            rng: None draws from a cryptographic keystream keyed by the operating system, per call. An integer
                seed or a `numpy.random.Generator` gives a reproducible draw, which is NOT private. Warning: an
                integer starts its stream anew on EVERY call, so two calls with the same seed use the same noise,
                element by element; for several reproducible calls pass one Generator, which moves on.
            on_out_of_range: "clip" to [lower, upper], or "error".

        Returns: an array for arrays, a scalar for scalars, a tensor (uint8, else int32) on the tensor's own device.

        Raises:
            ParameterError: NaN (naming the first bad index), or an input out of range under "error".

        Guarantees: Every report obeys `epsilon`, whatever floating point does (T5): x only picks between two rows.
        Edge cases: empty in, empty out; +-inf clips.
        """
        if self.categories is not None:
            x = self.numbers(x)
        return self.privatize_with_stats(x, rng, on_out_of_range=on_out_of_range)[0]

    def numbers(self, labels: npt.ArrayLike) -> FloatArray:
        """The inputs that categories stand for, shape of `labels`; raises ParameterError for an unknown one.

        A value that no category names is `(other)`, and a missing one `(missing)`, where the table has these
        categories (`core.values`).
        """
        if self.categories is None:
            raise ParameterError("labels", "given", "this table is about numbers; give it numbers")
        from mezzotint.core.values import inputs

        flat: Any = labels
        if isinstance(labels, list | tuple):
            flat = np.asarray(labels, dtype=object)
        if isinstance(flat, np.ndarray):
            flat = cast(Any, flat).reshape(-1)
        found = inputs(flat, self.categories)
        if found.present is not None:
            first = int(np.argmin(found.present))
            remedy = "is missing; drop such values, or build the table with missing=True"
            raise ParameterError("x", f"value {first}", remedy)
        return found.values.reshape(np.shape(labels))

    def privatize_with_stats(
        self, x: Any, rng: Seed = None, *, on_out_of_range: Literal["clip", "error"] = "clip"
    ) -> tuple[Any, PrivatizeStats]:
        """As `privatize`, and how many inputs lay below and above the range (a count over raw data: not private)."""
        from mezzotint.core import sampler

        return sampler.privatize(self, x, rng=rng, on_out_of_range=on_out_of_range)

    def decode(self, codes: npt.ArrayLike) -> FloatArray:
        """Level values of codes, any shape; raises ParameterError for a code that names no level."""
        return self.levels[self.check_codes(codes)]

    def check_codes(self, codes: npt.ArrayLike) -> IntArray:
        """The codes as an array of the same shape; raises ParameterError for a code that names no level."""
        array = np.asarray(codes)
        remedy = f"codes are integers from 0 to {self.levels.size - 1}"
        if array.size and array.dtype.kind not in "iu":
            raise wrong_kind("codes", array, "iu", remedy)
        if array.size and not 0 <= int(array.min()) <= int(array.max()) < self.levels.size:
            raise ParameterError("codes", f"{array.min()} to {array.max()}", remedy)
        return array.astype(np.int64, copy=False)

    # Privacy: answered by exact losses of the rows -------------------------------------------------------------

    @cached_property
    def worst_ratio(self) -> losses.WorstRatio:
        """The largest ratio of two weights of one level, as two integers, and where they stand."""
        return losses.worst_ratio(self.weights)

    @property
    def epsilon(self) -> float:
        """Exact pure epsilon of one report, replace-one neighbours, any two inputs; rounded up; inf if none (T3)."""
        return losses.log_ratio(self.worst_ratio.numerator, self.worst_ratio.denominator)

    def delta(self, epsilon: float) -> float:
        """Exact worst-case hockey-stick divergence over all input pairs at `epsilon` >= 0, rounded up."""
        return losses.delta(self.weights, epsilon)

    def renyi(self, alpha: float) -> float:
        """Worst-case Renyi divergence of order `alpha` in (0, inf] over all input pairs, nats, rounded up."""
        return losses.renyi(self.weights, alpha)

    def certificate(self) -> Certificate:
        """The checkable claim of one report: two integers whose ratio is e**epsilon, and where they stand."""
        return certify(self)

    # Storage -------------------------------------------------------------------------------------------------

    def to_json(self) -> str:
        """The file format as text: schema version, table, hash, certificate (docs/file-format.md)."""
        return dumps(self)

    @staticmethod
    def from_json(text: str) -> Mechanism:
        """Reads what `to_json` wrote; raises FileFormatError for anything else."""
        return loads(text)

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Writes the mechanism as JSON, atomically; an existing file is refused unless `overwrite`."""
        from mezzotint.core.files import write_text

        write_text(path, self.to_json(), overwrite=overwrite, parameter="path")

    @staticmethod
    def load(path: str | os.PathLike[str]) -> Mechanism:
        """Reads a mechanism file; raises FileFormatError for truncated, edited or foreign files, naming the file.

        Guarantees: hash and certificate are derived anew from the table; a file that claims anything else is refused.
        """
        from mezzotint.core.files import read_text

        text = read_text(path)
        try:
            return loads(text)
        except FileFormatError as error:
            raise FileFormatError(f"{os.fspath(path)}: {error}") from None


# The file ----------------------------------------------------------------------------------------------------------

FORMAT = "mezzotint-mechanism"
TABLE_FORMAT = "mezzotint-table"
"""That document without certificate and name (which may mention a claim): for reports drawn from a seed, about which
there is no certificate."""

VERSION = 1
_KEYS = {"format", "version", "name", "knots", "levels", "weights", "sha256", "certificate"}
_PLACE = frozenset({"numerator", "denominator", "level", "row_high", "row_low"})


def _content(mechanism: Mechanism) -> JsonObject:
    """The bytes that are hashed."""
    table = {name: getattr(mechanism, name).tolist() for name in ("knots", "levels", "weights")}
    return (
        table
        if mechanism.categories is None
        else {**table, "categories": list(mechanism.categories)}
    )


def dumps(mechanism: Mechanism, *, certified: bool = True) -> str:
    """The file's text. Numbers are shortest round-trip decimals, so reading gives the same bits back.

    Arguments:
        certified: False leaves certificate and name out, and every word about privacy with them (`TABLE_FORMAT`).
    """
    document: JsonObject = {
        "format": FORMAT if certified else TABLE_FORMAT,
        "version": VERSION,
        **({"name": mechanism.name} if certified else {}),
        **_content(mechanism),
        "sha256": mechanism.sha256,
    }
    if certified:
        document["certificate"] = mechanism.certificate().as_dict()
    return json.dumps(document, allow_nan=False, separators=(",", ":")) + "\n"


def parse_object(text: str, *, wanted: str = FORMAT) -> JsonObject:
    """The document as plain values: complete JSON in the wanted format and of this version.

    Raises:
        FileFormatError: not JSON, not ours, another version, a key that occurs twice.
    """
    from mezzotint.core.files import parse_json

    document = parse_json(text, name="mechanism file", strict=True)
    if not isinstance(document, dict) or cast("JsonObject", document).get("format") != wanted:
        raise FileFormatError(
            f'mechanism file: "format" must be "{wanted}"; this is some other file'
        )
    document = cast("JsonObject", document)
    version = document.get("version")
    if type(version) is not int or version != VERSION:  # True and 1.0 equal 1
        raise FileFormatError(
            f"mechanism file: version={version!r}: this release reads version {VERSION}; "
            "upgrade mezzotint or write the file again"
        )
    return document


def _list(value: Json, key: str) -> list[Json]:
    if not isinstance(value, list):
        raise FileFormatError(f"mechanism file: {key} must be a list")
    return value


def _integer_rows(value: Json) -> IntArray:
    rows = [_list(row, "each row of weights") for row in _list(value, "weights")]
    if not all(type(weight) is int and 0 <= weight <= 2**32 for row in rows for weight in row):
        raise FileFormatError("mechanism file: every weight must be an integer from 0 to 2**32")
    if len({len(row) for row in rows}) > 1:
        raise FileFormatError("mechanism file: rows of weights differ in length")
    return np.array(rows, dtype=np.int64)


def _reals(values: Json, key: str) -> FloatArray:
    numbers = _list(values, key)
    if not all(_is_number(number) for number in numbers):
        raise FileFormatError(f"mechanism file: {key} must be a list of numbers")
    try:
        return np.array(numbers, dtype=np.float64)
    except OverflowError:
        raise FileFormatError(
            f"mechanism file: a number of {key} is too large for a float"
        ) from None


# The certificate ---------------------------------------------------------------------------------------------------


def _stands(claims: JsonObject, truth: JsonObject, weights: IntArray) -> bool:
    """Whether numerator and denominator stand in the table where the certificate says, and have the largest ratio."""
    if not all(type(claims[name]) is int for name in _PLACE):
        return False
    level, rows = claims["level"], (claims["row_high"], claims["row_low"])
    if not 0 <= level < weights.shape[1] or not all(0 <= row < len(weights) for row in rows):
        return False
    top, bottom = (int(weights[row, level]) for row in rows)
    largest = top > 0 and top * truth["denominator"] == truth["numerator"] * bottom
    return largest and (top, bottom) == (claims["numerator"], claims["denominator"])


def _is_number(value: Json) -> TypeGuard[float]:
    return type(value) in (int, float)


def _same_epsilon(stated: Json, true: Json) -> bool:
    """A finite epsilon may overstate by what logarithms of other libraries differ; it never understates."""
    if not _is_number(stated) or not _is_number(true) or not abs(stated) < float("inf"):
        return False
    return Fraction(true) <= Fraction(stated) <= Fraction(true) * (1 + Fraction(1, 2**48))


def _check_certificate(stated: Json, mechanism: Mechanism) -> None:
    """Refuses a certificate that is not that of its table: what `privacy.verify` accepts, and nothing else."""
    truth = mechanism.certificate().as_dict()
    if not isinstance(stated, dict):
        raise FileFormatError(
            "mechanism file: certificate is not a JSON object; take the file as its maker wrote it"
        )
    claims = cast("JsonObject", stated)
    if set(claims) != set(truth):
        odd = ", ".join(sorted(set(claims) ^ set(truth)))
        raise FileFormatError(f"mechanism file: certificate: keys missing or unknown: {odd}")
    # Where several levels share the largest ratio, a maker may name any of them.
    free = _PLACE if _stands(claims, truth, mechanism.weights) else frozenset[str]()
    for key, true in truth.items():
        same = type(claims[key]) is type(true) and claims[key] == true
        if (
            not same
            and key not in free
            and not (key == "epsilon" and _same_epsilon(claims[key], true))
        ):
            raise FileFormatError(
                f"mechanism file: the certificate says {key}={claims[key]!r}, but the table gives {true!r}: the file "
                "was edited or forged; go back to the original, or rebuild the mechanism from its table and save it"
            )


def loads(text: str, *, certified: bool = True) -> Mechanism:
    """The mechanism that the text holds; hash and certificate derived anew and compared.

    Arguments:
        certified: False for a `TABLE_FORMAT` document, which has no certificate.

    Raises:
        FileFormatError: as `parse_object`; keys missing or unknown, an invalid table, or a hash or certificate that is
            not the table's.
    """
    wanted, keys = (FORMAT, _KEYS) if certified else (TABLE_FORMAT, _KEYS - {"name", "certificate"})
    document = parse_object(text, wanted=wanted)
    if document.get("kind") == "ranks":
        raise FileFormatError(
            "mechanism file: a ranked codebook; load it with mezzotint.vectors.RankedCodebook.load"
        )
    if odd := sorted((set(document) - {"categories"}) ^ keys):
        raise FileFormatError(f"mechanism file: keys missing or unknown: {', '.join(odd)}")
    if certified and not isinstance(document["name"], str):
        raise FileFormatError("mechanism file: name must be text")
    arguments: dict[str, Any] = {
        "knots": _reals(document["knots"], "knots"),
        "levels": _reals(document["levels"], "levels"),
        "weights": _integer_rows(document["weights"]),
        **({"name": document["name"]} if certified else {}),
    }
    if "categories" in document:
        arguments["categories"] = tuple(_list(document["categories"], "categories"))
    try:
        mechanism = Mechanism(**arguments)
    except (ParameterError, TypeError) as error:
        raise FileFormatError(f"mechanism file: {error}") from None
    if mechanism.sha256 != document["sha256"]:
        raise FileFormatError(
            "mechanism file: the table is not the one its sha256 names; it was edited or damaged"
        )
    if certified:
        _check_certificate(document["certificate"], mechanism)
    return mechanism
