"""Numbers in the errata of the papers, each computed, from exact laws where there are any.

The sentences stand in `docs/tables/errata.template`, which names these numbers; `docs/regenerate.py
--errata` fills them in and writes `docs/tables/errata.md`, and a test compares.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction

import numpy as np
from scipy import stats

from mezzotint import design, families, smoothed
from mezzotint.papers import optm_tables, rqm
from mezzotint.papers.exact_laws import rqm_exact
from mezzotint.papers.optm_programs import optm_exact, optm_one_ratio
from mezzotint.papers.published import published_erm_epsilon, published_rqm_epsilon

Numbers = Mapping[str, float]


def _erm_bound() -> Numbers:
    setting = {"lower": -1.0, "upper": 1.0, "gamma": 0.1}
    stated = published_erm_epsilon(levels=4, extension=0.25, **setting)
    bins = np.linspace(-1.25, 1.25, 4).tolist()
    return {"stated": stated, "exact": families.erm(bins=bins, **setting).epsilon}


def _table2_mvu() -> Numbers:
    mechanism = optm_tables.published_mvu()
    return {f"s{k}": mechanism.mae(stats.norm(0.5, k / 10)) for k in (1, 2, 3)}


def _table2_optm() -> Numbers:
    numbers: dict[str, float] = {}
    bins = optm_tables.PAPER_BINS
    for k in (1, 2, 3):
        prior = stats.norm(0.5, k / 10)
        best = design.optimal(1.0, levels=bins, loss="mae", prior=prior)
        numbers |= {
            f"published{k}": optm_one_ratio(1.0, prior=prior).loss,
            f"family{k}": optm_exact(1.0, bins=bins, prior=prior).loss,
            f"algorithm{k}": design.optm(1.0, bins=bins, prior=prior).loss,
            f"optimum{k}": best.loss,
        }
    return numbers


def _rqm_at_half() -> Numbers:
    best = design.calibrate("rqm", epsilon=0.5, loss="mae").mechanism
    optm = design.optm(0.5, bins=optm_tables.OPTM_BINS[0.5]).mechanism
    # With q near 0 it is one bit at -c - Delta and c + Delta, of ratio 1 + 2 c / Delta: no RQM has
    # less.
    return {
        "rqm": optm_tables.grid_mae(best),
        "optm": optm_tables.grid_mae(optm),
        "extension": 2 / np.expm1(0.5),
    }


def _erm_ends() -> Numbers:
    bins, gamma = optm_tables.ERM_SETTINGS[1.0]
    table = families.erm(bins=bins, gamma=gamma)
    low, high = np.log(table.pmf(np.array([-1.0, 1.0])))
    return {"ends": float(np.abs(low - high).max()), "exact": table.epsilon}


def _rqm_theorem() -> Numbers:
    stated = published_rqm_epsilon(
        lower=-1,
        upper=1,
        levels=16,
        extension=1.0,
        q=0.42,
    )
    return {"stated": stated, "exact": rqm.law_of(rqm.MAIN_PAIR).epsilon}


def _rqm_ends() -> Numbers:
    numbers: dict[str, float] = {}
    settings = {"first": (16, 1, "0.23"), "wide": (64, 1, "0.42"), "held": (64, "0.66", "0.33")}
    for name, (levels, extension, q) in settings.items():
        law = rqm_exact(levels=levels, extension=extension, q=q)
        inner_input = min(law.worst.likely, law.worst.unlikely, key=abs)
        numbers |= {name: law.epsilon, f"{name}_ends": law.between(1, -1).epsilon}
        numbers[f"{name}_input"] = float(inner_input)
    return numbers


def _rqm_pairs() -> Numbers:
    worse = {"pair1": rqm.PAIRS[0.15][1], "pair2": rqm.PAIRS[0.15][2], "pair3": rqm.PAIRS[0.25][2]}
    errors = {name: rqm.grid_error(rqm.law_of(pair)) for name, pair in worse.items()}
    thetas = {"pbm15": 0.15, "pbm25": 0.25}
    rivals = {name: rqm.poisson_error(rqm.poisson_law(theta)) for name, theta in thetas.items()}
    return errors | rivals


def _low_order() -> Numbers:
    numbers: dict[str, float] = {}
    for levels in rqm.SIZES:
        row = rqm.error_row(levels, 0.5, rqm.LOW_ORDER)
        numbers |= {f"rqm{levels}": row["RQM"], f"pbm{levels}": row["PBM"]}
    return numbers


def _imvu_bias() -> Numbers:
    return {f"half{k}": design.imvu(k / 2).mechanism.max_bias for k in (1, 2, 3)}


def _vectors() -> Numbers:
    error = optm_tables.published_mvu().mse()
    optm = optm_tables.CUBE.errors(optm_tables.CUBE.tables(1.0)[optm_tables.OPTM]())
    return {"mvu": error, "bound": (10 * error) ** 0.5, "optm": float(optm.mean())}


def _remark8() -> Numbers:
    epsilon = 0.02005
    stated = smoothed.published_remark8(
        200, sampling_rate=Fraction(1, 100), smallest_chance=Fraction(1, 2), epsilon=epsilon
    )
    exact = smoothed.expected(
        n=200,
        vertices=(Fraction(1, 2),),
        sampled=2,
        epsilon=epsilon,
    )
    return {"stated": stated, "exact": exact.log10_delta}


NUMBERS: dict[str, Callable[[], Numbers]] = {
    "erm_bound": _erm_bound,
    "erm_ends": _erm_ends,
    "imvu_bias": _imvu_bias,
    "low_order": _low_order,
    "remark8": _remark8,
    "rqm_at_half": _rqm_at_half,
    "rqm_ends": _rqm_ends,
    "rqm_pairs": _rqm_pairs,
    "rqm_theorem": _rqm_theorem,
    "table2_mvu": _table2_mvu,
    "table2_optm": _table2_optm,
    "vectors": _vectors,
}
"""Name in the template -> the numbers of an erratum, by name."""


def filled(template: str) -> str:
    """The text with its numbers, which stand in it as {erm_bound[exact]:.3f}."""
    return template.format_map({name: compute() for name, compute in NUMBERS.items()})
