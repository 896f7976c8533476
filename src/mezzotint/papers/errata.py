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
    stated_epsilon = published_erm_epsilon(levels=4, extension=0.25, **setting)
    bin_values = np.linspace(-1.25, 1.25, 4).tolist()
    return {"stated": stated_epsilon, "exact": families.erm(bins=bin_values, **setting).epsilon}


def _table2_mvu() -> Numbers:
    mechanism = optm_tables.published_mvu()
    return {f"s{tenths}": mechanism.mae(stats.norm(0.5, tenths / 10)) for tenths in (1, 2, 3)}


def _table2_optm() -> Numbers:
    numbers: dict[str, float] = {}
    paper_bins = optm_tables.PAPER_BINS
    for tenths in (1, 2, 3):
        prior = stats.norm(0.5, tenths / 10)
        optimal_design = design.optimal(1.0, levels=paper_bins, loss="mae", prior=prior)
        numbers |= {
            f"published{tenths}": optm_one_ratio(1.0, prior=prior).loss,
            f"family{tenths}": optm_exact(1.0, bins=paper_bins, prior=prior).loss,
            f"algorithm{tenths}": design.optm(1.0, bins=paper_bins, prior=prior).loss,
            f"optimum{tenths}": optimal_design.loss,
        }
    return numbers


def _rqm_at_half() -> Numbers:
    calibrated_rqm = design.calibrate("rqm", epsilon=0.5, loss="mae").mechanism
    optm_table = design.optm(0.5, bins=optm_tables.OPTM_BINS[0.5]).mechanism
    # With q near 0 it is one bit at -c - Delta and c + Delta, of ratio 1 + 2 c / Delta: no RQM has
    # less.
    return {
        "rqm": optm_tables.grid_mae(calibrated_rqm),
        "optm": optm_tables.grid_mae(optm_table),
        "extension": 2 / np.expm1(0.5),
    }


def _erm_ends() -> Numbers:
    bin_values, erm_gamma = optm_tables.ERM_SETTINGS[1.0]
    erm_table = families.erm(bins=bin_values, gamma=erm_gamma)
    lowest_logs, highest_logs = np.log(erm_table.pmf(np.array([-1.0, 1.0])))
    return {"ends": float(np.abs(lowest_logs - highest_logs).max()), "exact": erm_table.epsilon}


def _rqm_theorem() -> Numbers:
    stated_epsilon = published_rqm_epsilon(
        lower=-1,
        upper=1,
        levels=16,
        extension=1.0,
        q=0.42,
    )
    return {"stated": stated_epsilon, "exact": rqm.law_of(rqm.MAIN_PAIR).epsilon}


def _rqm_ends() -> Numbers:
    numbers: dict[str, float] = {}
    settings = {"first": (16, 1, "0.23"), "wide": (64, 1, "0.42"), "held": (64, "0.66", "0.33")}
    for setting_name, (level_count, extension, keep_probability) in settings.items():
        exact_law = rqm_exact(levels=level_count, extension=extension, q=keep_probability)
        inner_input = min(exact_law.worst.likely, exact_law.worst.unlikely, key=abs)
        numbers |= {
            setting_name: exact_law.epsilon,
            f"{setting_name}_ends": exact_law.between(1, -1).epsilon,
        }
        numbers[f"{setting_name}_input"] = float(inner_input)
    return numbers


def _rqm_pairs() -> Numbers:
    parameter_pairs = {
        "pair1": rqm.PAIRS[0.15][1],
        "pair2": rqm.PAIRS[0.15][2],
        "pair3": rqm.PAIRS[0.25][2],
    }
    rqm_errors = {
        number_name: rqm.grid_error(rqm.law_of(parameter_pair))
        for number_name, parameter_pair in parameter_pairs.items()
    }
    pbm_thetas = {"pbm15": 0.15, "pbm25": 0.25}
    pbm_errors = {
        number_name: rqm.poisson_error(rqm.poisson_law(theta))
        for number_name, theta in pbm_thetas.items()
    }
    return rqm_errors | pbm_errors


def _low_order() -> Numbers:
    numbers: dict[str, float] = {}
    for level_count in rqm.SIZES:
        errors = rqm.error_row(level_count, 0.5, rqm.LOW_ORDER)
        numbers |= {f"rqm{level_count}": errors["RQM"], f"pbm{level_count}": errors["PBM"]}
    return numbers


def _imvu_bias() -> Numbers:
    return {
        f"half{half_epsilons}": design.imvu(half_epsilons / 2).mechanism.max_bias
        for half_epsilons in (1, 2, 3)
    }


def _vectors() -> Numbers:
    coordinate_mse = optm_tables.published_mvu().mse()
    optm_errors = optm_tables.CUBE.errors(optm_tables.CUBE.tables(1.0)[optm_tables.OPTM]())
    return {
        "mvu": coordinate_mse,
        "bound": (10 * coordinate_mse) ** 0.5,
        "optm": float(optm_errors.mean()),
    }


def _remark8() -> Numbers:
    epsilon = 0.02005
    stated_delta = smoothed.published_remark8(
        200, sampling_rate=Fraction(1, 100), smallest_chance=Fraction(1, 2), epsilon=epsilon
    )
    exact_delta = smoothed.expected(
        n=200,
        vertices=(Fraction(1, 2),),
        sampled=2,
        epsilon=epsilon,
    )
    return {"stated": stated_delta, "exact": exact_delta.log10_delta}


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
    return template.format_map(
        {erratum_name: compute() for erratum_name, compute in NUMBERS.items()}
    )
