"""A scalar mechanism: a table of integers with its errors, its privacy, its reports and its
file.
"""

from __future__ import annotations

import math
import operator
import os
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, cast, final

import numpy as np
import numpy.typing as npt

from mezzotint.core import loss as losses
from mezzotint.core.arguments import check_count, check_indices
from mezzotint.core.errors import FileFormatError, ParameterError, as_reals, refuse_nan
from mezzotint.core.kinds import checked
from mezzotint.core.loss import Certificate
from mezzotint.core.records import JsonObject, html_of
from mezzotint.core.table import Table
from mezzotint.core.types import MAX_LEVELS, TOTAL, FloatArray, IndexArray, IntArray, Seed

if TYPE_CHECKING:
    from mezzotint.core.priors import Prior
    from mezzotint.core.sampler import PrivatizeStats


# Imported where they are used: `document` and `files`, which most programs never need; `priors` and
# `sampler`, which are heavy (numba, scipy).


_RANK_TOLERANCE = 1e-11
"""Of an information matrix, relative to its trace."""

_RAREST_CELL = 1e-6
"""No cell of a distribution function's error is taken as rarer."""


def cdf_variance(rows: FloatArray, shares: FloatArray) -> float:
    """n times the variance of an efficient estimate of the distribution function, averaged over the
    inner edges.

    The rows (K, m) are the pmfs of a report from each cell, `shares` (K,) the cells' true shares.
    inf where reports do not tell the cells apart, whatever their number.
    """
    pmf = shares @ rows
    is_reported = pmf > 0
    reported_rows = rows[:, is_reported]
    likelihoods = reported_rows / pmf[is_reported]
    information = likelihoods @ reported_rows.T
    tolerance = _RANK_TOLERANCE * float(information.trace())
    information_rank = np.linalg.matrix_rank(
        information,
        tol=tolerance,
        hermitian=True,
    )
    if information_rank < shares.size:
        return math.inf
    cells_below = np.tri(shares.size)[:-1]
    covariances = np.linalg.solve(information, cells_below.T)
    second_moments = cells_below @ covariances
    means = cells_below @ shares
    squared_means = means**2
    total_variance = second_moments.trace() - squared_means.sum()
    return float(total_variance / len(cells_below))


@final
@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Mechanism(Table):
    """A scalar mechanism: a table (knots, levels, weights; see `Table`) with everything that
    follows from it.

    Arguments:
        knots, levels, weights, categories: as of `Table`.
        name: free text that describes the table.

    Raises:
        ParameterError: naming the parameter, its value and the remedy, when the arrays form no
            table.

    Guarantees:
        Frozen: the arrays are read-only copies.
        Every number about privacy is a worst case over all pairs of inputs (docs/proofs/tables.md,
        T2) and overstates, never understates.
        Equality and hash are those of the table; the name does not count.

    Source: math notes T1-T6 (docs/proofs/tables.md).

    Example:
        >>> m = Mechanism(knots=[-1, 1], levels=[-2, 2], weights=[[3 * 2**30, 2**30], [2**30, 3 *
        ...     2**30]])
        >>> round(m.epsilon, 4), m.max_bias
        (1.0986, 0.0)
    """

    name: str = "table"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(cast(object, self.name), str):
            raise ParameterError("name", repr(self.name), "a name is text")

    def __repr__(self) -> str:
        return (
            f"Mechanism(name={self.name!r}, lower={self.lower:g}, upper={self.upper:g}, "
            f"levels={self.levels.size}, knots={self.knots.size}, sha256={self.sha256[:12]!r})"
        )

    def _repr_html_(self) -> str:
        """A table, for notebooks."""
        content: JsonObject = {"name": self.name}
        if self.categories is None:
            content["inputs"] = [self.lower, self.upper]
            content["levels"] = self.levels.tolist()
        else:
            content["categories"] = list(self.categories)
            content["reports"] = self.levels.size
        content["rows"] = self.knots.size
        content["bits"] = self.bits
        content["certificate"] = str(self.certificate())
        return html_of(content)

    # What it does to an input ---------------------------------------------------------------------

    def locate(self, x: npt.ArrayLike) -> tuple[IndexArray, FloatArray]:
        """Segment index k and position t in [0, 1] of each clipped input, any shape; NaN raises
        ParameterError.
        """
        values = as_reals("x", x, "need real numbers")
        refuse_nan("x", values)
        clipped = np.clip(values, self.lower, self.upper)
        knots_below = np.searchsorted(self.knots, clipped, side="right")
        segment = knots_below - 1
        segment = np.minimum(segment, self.knots.size - 2)
        segment_start = self.knots[segment]
        segment_width = self.knots[segment + 1] - segment_start
        position = (clipped - segment_start) / segment_width
        return segment, position

    def _interpolate(
        self,
        values_at_knots: FloatArray,
        x: npt.ArrayLike,
    ) -> FloatArray:
        segment, position = self.locate(x)
        extra_axes = (1,) * (values_at_knots.ndim - 1)
        position = position.reshape(position.shape + extra_axes)
        start_values = values_at_knots[segment]
        stop_values = values_at_knots[segment + 1]
        return (1 - position) * start_values + position * stop_values

    def pmf(self, x: npt.ArrayLike) -> FloatArray:
        """Probabilities of the m levels at inputs x of any shape: (..., m) float64. NaN raises; the
        rest clips.
        """
        return self._interpolate(self.probabilities, x)

    def mean(self, x: npt.ArrayLike) -> FloatArray:
        """Expected decoded report at inputs x, data units, shape of x. Equals clipped x up to
        `max_bias`.
        """
        return self._interpolate(self.probabilities @ self.levels, x)

    def variance(self, x: npt.ArrayLike) -> FloatArray:
        """Variance of the decoded report at inputs x, squared data units, shape of x."""
        # Centred before squaring: E B^2 - (E B)^2 would cancel where levels are far from 0.
        means = self.mean(x)
        deviation = self.levels - means[..., None]
        probabilities = self.pmf(x)
        return np.einsum("...i,...i->...", probabilities, deviation**2)

    @cached_property
    def frequency_decoders(self) -> FloatArray:
        """(m, K+1) numbers: the mean of column k over the reports is unbiased for the share of
        inputs at knot k.

        Of all such decoders, the one of least variance when the knots are equally frequent
        (Aitken). It is meaningful where inputs are knots, as categories are.

        Raises:
            ParameterError: the rows are linearly dependent, so that reports do not determine the
                frequencies.
        """
        rows = self.probabilities
        shares = rows.mean(axis=0)
        weighted_rows = np.divide(
            rows,
            shares,
            out=np.zeros_like(rows),
            where=shares > 0,
        )
        gram = weighted_rows @ rows.T
        rank = np.linalg.matrix_rank(gram, hermitian=True)
        row_count = len(rows)
        if rank < row_count:
            remedy = (
                "are linearly dependent: reports cannot tell the inputs apart; use another table"
            )
            raise ParameterError("weights", f"{row_count} rows", remedy)
        decoders = weighted_rows.T @ np.linalg.inv(gram)
        return np.asarray(decoders, dtype=np.float64)

    @cached_property
    def exact_max_bias(self) -> Fraction:
        """sup over inputs of |E[decoded] - x| as a rational. Piecewise linear in x, so it sits at a
        knot (T4).
        """
        # Floats are dyadic: over one common power of two the row means are integer sums.
        levels = list(map(Fraction, self.levels.tolist()))
        knots = map(Fraction, self.knots.tolist())
        denominator = max(level.denominator for level in levels)
        integers = [int(level * denominator) for level in levels]
        weight_rows: list[list[int]] = self.weights.tolist()
        largest_bias = Fraction(0)
        for knot, weight_row in zip(knots, weight_rows, strict=True):
            integer_mean = sum(map(operator.mul, weight_row, integers))
            row_mean = Fraction(integer_mean, denominator * TOTAL)
            bias = abs(row_mean - knot)
            largest_bias = max(largest_bias, bias)
        return largest_bias

    @property
    def max_bias(self) -> float:
        """`exact_max_bias` as a float, rounded up; data units."""
        return losses.float_above(self.exact_max_bias)

    def mse(self, prior: object = None) -> float:
        """Mean squared error of the decoded report, squared data units, averaged over the inputs of
        `prior`.

        Arguments:
            prior: None for uniform on [lower, upper], a frozen scipy.stats distribution, or a 1-D
                sample (NaN raises). Inputs outside [lower, upper] count as clipped: the error is
                against the clipped input.

        Source: T6; exact for uniform and sample priors, quadrature to about 1e-13 otherwise.
        """
        return self._expected_loss("mse", prior)

    def mae(self, prior: object = None) -> float:
        """Mean absolute error of the decoded report, data units; `prior` as for `mse`."""
        return self._expected_loss("mae", prior)

    def cdf_error(self, cells: int, prior: object = None) -> float:
        """Root of n times the variance of the estimated distribution function of n reports' inputs.

        Arguments:
            cells: of the range, even ones; averaged over their inner edges. Inputs count as the
                middle of their cell.
            prior: as for `mse`; no cell is taken as rarer than 1e-6.

        Returns: inf where the table does not tell the cells apart.
        """
        cell_count = check_count("cells", cells, most=MAX_LEVELS)
        edges = np.linspace(self.lower, self.upper, cell_count + 1)
        moments = self._prior(prior).moments(edges)
        cell_masses = np.maximum(moments[:, 0], _RAREST_CELL)
        shares = cell_masses / cell_masses.sum()
        centres = (edges[1:] + edges[:-1]) / 2
        variance = cdf_variance(self.pmf(centres), shares)
        return math.sqrt(variance)

    def worst_mse(self) -> float:
        """The largest mean squared error over all inputs, squared data units."""
        # On a segment the error is quadratic in the position t: E B^2 and E B are linear in t.
        segment_lengths = np.diff(self.knots)
        starts = np.flatnonzero(segment_lengths > 0)
        stops = starts + 1
        lengths = segment_lengths[starts]
        segment_starts = self.knots[starts]
        start_rows = self.probabilities[starts]
        stop_rows = self.probabilities[stops]

        def error(position: float) -> FloatArray:
            inputs = segment_starts + position * lengths
            rows = (1 - position) * start_rows + position * stop_rows
            errors = self.levels - inputs[:, None]
            expected_squares = rows * errors**2
            return expected_squares.sum(axis=1)

        start_error = error(0.0)
        stop_error = error(1.0)
        middle_error = error(0.5)
        curvature = 2 * (start_error + stop_error) - 4 * middle_error
        slope = stop_error - start_error - curvature
        with np.errstate(divide="ignore", invalid="ignore"):
            stationary = -slope / (2 * curvature)
        vertex = np.where(curvature < 0, stationary, 0.0)
        vertex = np.clip(np.nan_to_num(vertex), 0.0, 1.0)
        vertex_error = start_error + slope * vertex + curvature * vertex * vertex
        return float(np.max([start_error, stop_error, vertex_error]))

    def _prior(self, prior: object) -> Prior:
        from mezzotint.core.priors import as_prior

        return as_prior(prior, lower=self.lower, upper=self.upper)

    def _expected_loss(
        self,
        loss: Literal["mse", "mae"],
        prior: object,
    ) -> float:
        """The mean loss of a report under a prior: data units, squared for "mse"."""
        from mezzotint.core.priors import cost_matrix

        costs = cost_matrix(
            knots=self.knots,
            levels=self.levels,
            prior=self._prior(prior),
            loss=loss,
        )
        expected_costs = costs * self.probabilities
        return float(expected_costs.sum())

    # Reports --------------------------------------------------------------------------------------

    def privatize(
        self,
        x: Any,
        rng: Seed = None,
        *,
        on_out_of_range: Literal["clip", "error"] = "clip",
    ) -> Any:
        """Draws one report per input: codes 0..m-1, uint8 up to 256 levels else uint16, same shape
        as x.

        Arguments:
            x: numbers in data units: scalar, numpy array (float32/64; integers are cast) or torch
                tensor.
            rng: None draws from a cryptographic keystream keyed by the operating system, per call.
                An integer seed or a `numpy.random.Generator` gives a reproducible draw, which is
                NOT private. Warning: an integer starts its stream anew on EVERY call, so two calls
                    with the same seed use the same noise,
                element by element; for several reproducible calls pass one Generator, which moves
                on.
            on_out_of_range: "clip" to [lower, upper], or "error".

        Returns: an array for arrays, a scalar for scalars, a tensor (uint8, else int32) on the
            tensor's own device.

        Raises:
            ParameterError: NaN (naming the first bad index), or an input out of range under
                "error".

        Guarantees: Every report obeys `epsilon`, whatever floating point does (T5): x only picks
            between two rows.
        Edge cases: empty in, empty out; +-inf clips.
        """
        if self.categories is not None:
            x = self.numbers(x)
        codes, _stats = self.privatize_with_stats(x, rng, on_out_of_range=on_out_of_range)
        return codes

    def numbers(self, labels: npt.ArrayLike) -> FloatArray:
        """The inputs that categories stand for, shape of `labels`; raises ParameterError for an
        unknown one.

        A value that no category names is `(other)`, and a missing one `(missing)`, where the table
        has these categories (`core.values`).
        """
        if self.categories is None:
            raise ParameterError("labels", "given", "this table is about numbers; give it numbers")
        from mezzotint.core.values import inputs

        flat_labels: Any = labels
        if isinstance(labels, list | tuple):
            flat_labels = np.asarray(labels, dtype=object)
        if isinstance(flat_labels, np.ndarray):
            flat_labels = cast(Any, flat_labels).reshape(-1)
        listed = inputs(flat_labels, self.categories)
        if listed.present is not None:
            first_missing = int(np.argmin(listed.present))
            remedy = "is missing; drop such values, or build the table with missing=True"
            raise ParameterError("x", f"value {first_missing}", remedy)
        values = listed.values.astype(np.float64)
        return values.reshape(np.shape(cast(Any, labels)))

    def privatize_with_stats(
        self,
        x: Any,
        rng: Seed = None,
        *,
        on_out_of_range: Literal["clip", "error"] = "clip",
    ) -> tuple[Any, PrivatizeStats]:
        """As `privatize`, and how many inputs lay below and above the range (a count over raw data:
        not private).
        """
        from mezzotint.core import sampler

        return sampler.privatize(
            self,
            x,
            rng=rng,
            on_out_of_range=on_out_of_range,
        )

    def decode(self, codes: npt.ArrayLike) -> FloatArray:
        """Level values of codes, any shape; raises ParameterError for a code that names no
        level.
        """
        return self.levels[self.check_codes(codes)]

    def check_codes(self, codes: npt.ArrayLike) -> IntArray:
        """The codes as an array of the same shape; raises ParameterError for a code that names no
        level.
        """
        return check_indices("codes", codes, self.levels.size)

    # Privacy: answered by exact losses of the rows ------------------------------------------------

    @cached_property
    def worst_ratio(self) -> losses.WorstRatio:
        """The largest ratio of two weights of one level, as two integers, and where they stand."""
        return losses.worst_ratio(self.weights)

    @cached_property
    def epsilon(self) -> float:
        """Exact pure epsilon of one report, replace-one neighbours, any two inputs; rounded up; inf
        if none (T3).
        """
        worst = self.worst_ratio
        return losses.log_ratio(worst.numerator, worst.denominator)

    def delta(self, epsilon: float) -> float:
        """Exact worst-case hockey-stick divergence over all input pairs at `epsilon` >= 0, rounded
        up.
        """
        return losses.delta(self.weights, epsilon)

    def renyi(self, alpha: float) -> float:
        """Worst-case Renyi divergence of order `alpha` in (0, inf] over all input pairs, nats,
        rounded up.
        """
        return losses.renyi(self.weights, alpha)

    def certificate(self) -> Certificate:
        """Return the checkable claim of one report: two integers whose ratio is e**epsilon, and
        their indices.
        """
        max_bias = None
        if self.categories is None:
            max_bias = self.exact_max_bias
        return Certificate(
            **vars(self.worst_ratio),
            max_bias=max_bias,
            sha256=self.sha256,
        )

    # Storage --------------------------------------------------------------------------------------

    def to_json(self) -> str:
        """Return the file's text: schema version, table, hash, name and epsilon
        (docs/file-format.md).
        """
        from mezzotint.core.document import write_mechanism

        return write_mechanism(self, name=self.name, epsilon=self.epsilon)

    @staticmethod
    @checked
    def from_json(text: str | bytes) -> Mechanism:
        """Read what `to_json` wrote; raises FileFormatError for anything else, and for a stated
        epsilon that differs.
        """
        from mezzotint.core.document import check_stated_epsilon, read_mechanism

        document = read_mechanism(text)
        mechanism = Mechanism.of(document.table, name=document.name or "")
        check_stated_epsilon(document.epsilon, mechanism.epsilon)
        return mechanism

    @staticmethod
    def of(table: Table, *, name: str = "table") -> Mechanism:
        """Return the mechanism of a table."""
        return Mechanism(
            knots=table.knots,
            levels=table.levels,
            weights=table.weights,
            categories=table.categories,
            name=name,
        )

    @checked
    def save(
        self,
        path: str | os.PathLike[str],
        *,
        overwrite: bool = False,
    ) -> None:
        """Write the mechanism as JSON, atomically; an existing file is refused unless
        `overwrite`.
        """
        from mezzotint.core.files import write_text

        write_text(path, self.to_json(), overwrite=overwrite, parameter="path")

    @staticmethod
    @checked
    def load(path: str | os.PathLike[str]) -> Mechanism:
        """Read a mechanism file; raises FileFormatError for truncated, edited or foreign files,
        naming the file.

        Guarantees: hash and certificate are derived from the table; a file that states another hash
            or epsilon is refused.
        """
        from mezzotint.core.files import read_text

        text = read_text(path)
        try:
            return Mechanism.from_json(text)
        except FileFormatError as error:
            raise FileFormatError(f"{os.fspath(path)}: {error}") from None
