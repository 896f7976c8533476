"""A good call of every public name, and wrong values for each of its parameters."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib
import inspect
import io
import json
import math
import signal
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

import mezzotint as mz
from mezzotint.core.errors import MezzotintError

ONE_BIT = mz.families.randomized_response(epsilon=1.0)
GRID = mz.families.rqm(levels=4)
COLOURS = mz.families.categorical(categories=["a", "b"], epsilon=1.0)
KEY = bytes(32)


def counts() -> Any:
    return mz.collect.CodeCounts(mechanism=GRID, counts=np.array([30, 20, 20, 30]))


def colour_counts() -> Any:
    return mz.collect.CodeCounts(mechanism=COLOURS, counts=np.array([30, 20]))


def groups() -> dict[str, Any]:
    codes = GRID.privatize(np.linspace(-1, 1, 60), rng=1)
    return mz.collect.groups_of(codes, by=["a", "b", "c"] * 20, mechanism=GRID)


def single_report() -> str:
    fields = {"format": "mezzotint-report", "version": 1, "sha256": GRID.sha256, "code": 1}
    return json.dumps(fields)


def hashed_counts() -> Any:
    domain = mz.families.hashed(categories=["a", "b", "c"], epsilon=1.0)
    shape = (domain.hashes, domain.mechanism.levels.size)
    return mz.collect.HashedCounts(domain=domain, counts=np.full(shape, 50))


def pairs() -> Any:
    return mz.collect.PairCounts(
        first=ONE_BIT, second=ONE_BIT, counts=np.array([[30, 20], [20, 30]])
    )


def release(**others: Any) -> Any:
    return mz.privacy.Release(mechanism=ONE_BIT, delta=0.0, **others)


@functools.cache
def codebook() -> Any:
    return mz.vectors.ranked_codebook(8, 2.0, 3)


def guarantee() -> Any:
    return mz.smoothed.guarantee(expectation(), vertices=[0.25])


@functools.cache
def expectation() -> Any:
    return mz.smoothed.expected(n=8, vertices=[0.25], sampled=4, epsilon=1.0)


def written(folder: Path) -> Path:
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = folder / "in.parquet"
    if not path.exists():
        pq.write_table(pa.table({"x": np.linspace(-1, 1, 20), "who": list("abcde") * 4}), path)
    return path


@functools.cache
def _drawn_reports() -> bytes:
    """Of one run, for every run draws anew."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "reports.parquet"
        source = written(Path(folder))
        mz.collect.privatize(source, path, column="x", mechanism=GRID, keep=["who"])
        return path.read_bytes()


def reports(folder: Path) -> Path:
    path = folder / "reports.parquet"
    path.write_bytes(_drawn_reports())
    return path


def one_bit(epsilon: float) -> mz.Mechanism:
    return mz.families.randomized_response(epsilon=epsilon)


def saved_counts(folder: Path) -> Path:
    path = folder / "counts.json"
    if not path.exists():
        mz.collect.save_counts(counts(), path)
    return path


def key_file(folder: Path) -> Path:
    path = folder / "memo.key"
    if not path.exists():
        mz.collect.new_memo_key(path)
        path.write_text(KEY.hex() + "\n")
    return path


def fresh(folder: Path) -> Path:
    """A path that nothing has yet."""
    taken = len(list(folder.iterdir()))
    return folder / f"new-{taken}"


def ledger(folder: Path) -> Any:
    return mz.privacy.Ledger()


def build(noise: float) -> Any:
    return release(rounds=1) if noise > 0 else release(rounds=2)


Call = Callable[[Path], dict[str, Any]]

CALLS: dict[str, Call] = {
    "Mechanism": lambda folder: {
        "knots": [0.0, 1.0], "levels": [-1.0, 2.0], "weights": [[2**31, 2**31], [2**30, 3 * 2**30]], "name": "table",
    },
    "families.HashedDomain": lambda folder: {
        "categories": ("a", "b"), "mechanism": mz.families.hashed(categories=["a", "b"], epsilon=1.0).mechanism,
    },
    "families.PoissonBinomial": lambda folder: {"lower": -1, "upper": 1, "trials": 3, "theta": 0.25},
    "families.categorical": lambda folder: {"categories": ["a", "b"], "epsilon": 1.0},
    "families.discrete_gaussian": lambda folder: {"sigma": 2.0, "bound": 20},
    "families.discrete_laplace": lambda folder: {"scale": 2.0, "bound": 20},
    "families.erm": lambda folder: {"lower": -1, "upper": 1, "bins": [-2, -0.5, 0.5, 2], "gamma": 1.0},
    "families.frequency_variance": lambda folder: {"mechanism": COLOURS},
    "families.hashed": lambda folder: {"categories": ["a", "b"], "epsilon": 1.0},
    "families.k_randomized_response": lambda folder: {"lower": -1, "upper": 1, "levels": 4, "epsilon": 1.0},
    "families.pbm": lambda folder: {"lower": -1, "upper": 1, "trials": 3, "theta": 0.25, "knots": 5},
    "families.randomized_response": lambda folder: {"lower": -1, "upper": 1, "epsilon": 1.0},
    "families.rqm": lambda folder: {"lower": -1, "upper": 1, "levels": 4, "extension": 1.0, "q": 0.4},
    "families.selection": lambda folder: {
        "lower": -1, "upper": 1, "bins": [-2.0, -0.5, 0.5, 2.0], "left": [[1.0], [0.5, 0.5], [0.4, 0.3, 0.3]],
        "right": None,
    },
    "families.skellam": lambda folder: {"variance": 4.0, "bound": 20},
    "families.square_wave": lambda folder: {"lower": -1, "upper": 1, "outputs": 8, "epsilon": 1.0},
    "families.stochastic_rounding": lambda folder: {"lower": -1, "upper": 1, "levels": 4},
    "privacy.Charge": lambda folder: {"identity": "a", "client": "b", "epsilon": 1.0, "delta": 0.0},
    "privacy.Ledger": lambda folder: {"path": fresh(folder), "slack": 1e-6},
    "privacy.Release": lambda folder: {
        "mechanism": ONE_BIT, "delta": 1e-6, "trust": "secure_sum", "dimension": 1, "rounds": 1, "sampling": "public",
        "sampling_rate": 1.0, "neighboring": "replace_one", "clients": 10, "corrupted": 0, "clip_norm": None,
        "distinct": None,
    },
    "privacy.account": lambda folder: {"released": release()},
    "privacy.basis": lambda folder: {"observer": "reports"},
    "privacy.check_report": lambda folder: {"mechanism": ONE_BIT, "proof": "pure", "epsilon": 1.0},
    "privacy.delta": lambda folder: {"weights": ONE_BIT.weights, "epsilon": 0.5},
    "privacy.metric_epsilon": lambda folder: {"mechanism": GRID, "metric": "absolute"},
    "privacy.prove": lambda folder: {"released": release(), "seconds": 5},
    "privacy.pure_epsilon": lambda folder: {"weights": ONE_BIT.weights},
    "privacy.renyi": lambda folder: {"weights": ONE_BIT.weights, "alpha": 2.0},
    "privacy.report_claim": lambda folder: {"mechanism": ONE_BIT},
    "privacy.report_words": lambda folder: {"mechanism": ONE_BIT},
    "privacy.tradeoff": lambda folder: {"mechanism": ONE_BIT},
    "privacy.vector_epsilon": lambda folder: {"mechanism": ONE_BIT, "dimension": 2, "l2_distance": 1.0, "inputs": "real"},
    "privacy.verify": lambda folder: {"mechanism": ONE_BIT, "seconds": 5},
    "collect.CodeCounts": lambda folder: {"mechanism": GRID, "counts": np.array([3, 2, 2, 3]), "seeded": None},
    "collect.HashedCounts": lambda folder: {
        "domain": hashed_counts().domain, "counts": hashed_counts().counts, "seeded": None,
    },
    "collect.PairCounts": lambda folder: {
        "first": ONE_BIT, "second": ONE_BIT, "counts": np.array([[3, 2], [2, 3]]), "seeded": None,
    },
    "collect.Lot": lambda folder: {"people": "who", "question": 1, "questions": 2, "name": "survey"},
    "collect.Memo": lambda folder: {"users": "who", "key": KEY},
    "collect.Settings": lambda folder: {
        "keep": (), "missing": "error", "on_out_of_range": "clip", "engine": "local", "address": None, "threads": 1,
        "block_rows": 1024, "rng": None, "ledger": ledger(folder), "budget": 3.0, "charge_by": "who", "at_most": 2,
        "per": "week", "delimiter": ",", "missing_values": ("NA",), "decimal": ".", "lot": None, "memo": None,
    },
    "collect.arrow_codes": lambda folder: {"values": [0.1, 0.2], "mechanism": GRID, "rng": 1},
    "collect.difference": lambda folder: {
        "one": mz.collect.parts_of(groups()["a"])["mean"], "other": mz.collect.parts_of(groups()["b"])["mean"],
    },
    "collect.estimate": lambda folder: {
        "counts": counts(), "confidence": 0.95, "method": "asymptotic", "histogram": 2, "quantiles": [0.5],
        "above": [0.0],
        "deal": None,
    },
    "collect.estimate_groups": lambda folder: {
        "groups": groups(), "confidence": 0.95, "above": [0.0], "histogram": 2, "quantiles": [0.5], "against": "a",
        "sizes": None,
    },
    "collect.groups_of": lambda folder: {
        "codes": GRID.privatize([0.1, 0.2], rng=1), "by": ["a", "b"], "mechanism": GRID, "weights": [1.0, 2.0],
    },
    "collect.heavy_hitters": lambda folder: {"counts": hashed_counts(), "top": 2, "confidence": 0.95},
    "collect.load_counts": lambda folder: {"path": saved_counts(folder)},
    "collect.load_memo_key": lambda folder: {"path": key_file(folder)},
    "collect.memoised": lambda folder: {
        "values": [0.1, 0.2], "users": ["a", "b"], "mechanism": GRID, "key": KEY, "column": "x",
    },
    "collect.new_memo_key": lambda folder: {"path": fresh(folder)},
    "collect.parts_of": lambda folder: {"group": groups()["a"], "confidence": 0.95},
    "collect.people_for": lambda folder: {"mechanism": GRID, "half_width": 0.1, "confidence": 0.95},
    "collect.plan": lambda folder: {
        "estimand": "mean", "epsilon": 1.0, "people": 1000, "half_width": None, "levels": 2, "columns": 1, "waves": 1,
        "distinct": None, "lower": 0.0, "upper": 1.0, "confidence": 0.95,
    },
    "collect.privatize": lambda folder: {
        "source": written(folder), "out": fresh(folder).with_suffix(".parquet"), "column": "x", "mechanism": GRID,
    },
    "collect.privatize_columns": lambda folder: {
        "source": written(folder), "out": fresh(folder).with_suffix(".parquet"), "mechanisms": {"x": GRID},
    },
    "collect.question_of": lambda folder: {"ids": ["a", "b"], "questions": 2, "name": "survey"},
    "collect.read_counts": lambda folder: {
        "source": reports(folder), "column": None, "mechanism": None, "engine": "local", "threads": 1,
    },
    "collect.read_groups": lambda folder: {"source": reports(folder), "by": "who", "column": None, "threads": 1},
    "collect.read_values": lambda folder: {"path": written(folder), "column": "x"},
    "collect.relation": lambda folder: {"pairs": pairs(), "confidence": 0.95},
    "collect.save_counts": lambda folder: {"counts": counts(), "path": fresh(folder).with_suffix(".json")},
    "collect.stratified": lambda folder: {
        "parts": {name: mz.collect.parts_of(group)["mean"] for name, group in groups().items()},
        "shares": {"a": 0.5, "b": 0.25, "c": 0.25},
    },
    "collect.threshold_table": lambda folder: {"epsilon": 1.0, "lower": 0.0, "upper": 1.0, "threshold": 0.5},
    "collect.total": lambda folder: {"group": groups()["a"], "confidence": 0.95},
    "collect.two_way": lambda folder: {
        "pairs": mz.collect.PairCounts(first=COLOURS, second=COLOURS, counts=np.array([[30, 20], [20, 30]])),
        "confidence": 0.95,
    },
    "design.calibrate": lambda folder: {
        "family": "rqm", "epsilon": 1.0, "lower": -1, "upper": 1, "levels": 4, "loss": "mse", "prior": None,
        "max_level": 3.0, "knots": 5,
    },
    "design.compare": lambda folder: {
        "epsilon": 1.0, "bits": 1, "levels": None, "lower": -1, "upper": 1, "prior": None, "loss": "mse",
        "families": ("randomized_response",),
    },
    "design.for_shape": lambda folder: {"epsilon": 1.0, "lower": -1, "upper": 1, "levels": 4, "reports": 1000},
    "design.imvu": lambda folder: {"epsilon": 1.0, "lower": -1, "upper": 1, "levels": [-3.0, 3.0], "knots": 3},
    "design.interpolated": lambda folder: {"mechanism": mz.design.optimal(1.0, levels=4, knots=5, loss="cdf").mechanism},
    "design.limit": lambda folder: {
        "epsilon": 1.0, "lower": -1, "upper": 1, "loss": "mse", "prior": None, "max_level": None,
    },
    "design.metric_epsilon": lambda folder: {"mechanism": GRID, "metric": "absolute"},
    "design.mvu": lambda folder: {"epsilon": 1.0, "lower": -1, "upper": 1, "levels": [-3.0, 3.0], "input_bits": 1},
    "design.optimal": lambda folder: {
        "epsilon": 1.0, "lower": -1, "upper": 1, "levels": [-3.0, 3.0], "loss": "mse", "prior": None, "knots": 3,
        "delta": 0.0,
        "max_bias": 0.0, "alpha": None, "metric": None, "max_level": None, "seconds": 5.0,
    },
    "design.optm": lambda folder: {
        "epsilon": 1.0, "lower": -1, "upper": 1, "bins": [-3.0, -0.5, 0.5, 3.0], "levels": 4, "prior": None,
        "constraints": "theorem5", "boxes": 3,
    },
    "design.shape_error": lambda folder: {"mechanism": GRID, "reports": 1000},
    "design.tradeoff": lambda folder: {
        "epsilons": [1.0], "bits": (1,), "lower": -1, "upper": 1, "prior": None, "families": (one_bit,),
    },
    "design.vector": lambda folder: {
        "epsilon": 1.0, "dimension": 2, "clip_norm": 1.0, "levels": 2, "knots": 3, "inputs": "grid", "prior": None,
    },
    "design.vector_epsilon": lambda folder: {"mechanism": ONE_BIT, "dimension": 2, "l2_distance": 1.0, "inputs": "real"},
    "vectors.Family": lambda folder: {"name": "mine", "build": mz.vectors.one_bit},
    "vectors.GaussianScheme": lambda folder: {
        "size": 4, "clip_norm": 1.0, "granularity": 0.1, "modulus_bits": 16, "deviation": 20.0, "seed": 0,
    },
    "vectors.RankedCodebook": lambda folder: {
        "table": codebook().table, "kind": codebook().kind, "dimension": 8, "norms": codebook().norms, "indices": 1,
        "subspace": None, "clip_norm": 1.0, "beacon": "", "name": "mine",
    },
    "vectors.RankedSession": lambda folder: {
        "scheme": codebook(), "client": "ann", "ledger": ledger(folder), "budget": (9.0, 0.0), "path": None,
        "answers": {0: (1, 2, "ab")},
    },
    "vectors.Rotation": lambda folder: {"dimension": 4, "seed": 1},
    "vectors.Setting": lambda folder: {
        "clients": 100, "dimension": 8, "rounds": 1, "trust": "local", "epsilon": 1.0, "delta": 1e-6, "bits": 8,
        "corrupted": 0,
    },
    "vectors.TableScheme": lambda folder: {"mechanism": GRID, "size": 4, "clients": 10, "clip_norm": 1.0, "seed": 0},
    "vectors.clip": lambda folder: {"vector": [3.0, 4.0], "norm": "l2", "bound": 1.0},
    "vectors.one_bit": lambda folder: {"strength": 1.0, "reach": 1.0},
    "vectors.own_seeds": lambda folder: {"count": 2},
    "vectors.ranked_codebook": lambda folder: {
        "dimension": 8, "epsilon": 1.0, "bits": 2, "tolerance": 0.05, "codebook": "auto", "norms": "auto",
        "subspace": None,
        "clip_norm": 1.0, "beacon": "b",
    },
    "vectors.round_seeds": lambda folder: {"round_number": 1, "slots": [1, 2]},
    "smoothed.asymptotic_rate": lambda folder: {"vertices": [0.25], "loss_rate": 0.5, "epsilon": 1.0},
    "smoothed.average_profile": lambda folder: {"records": [3, 4, 5], "sampled": 2, "epsilon": 1.0, "levels": 8},
    "smoothed.compose": lambda folder: {"guarantees": [guarantee(), guarantee()], "randomness": "independent"},
    "smoothed.continuous_average": lambda folder: {"n": 6, "sampled": 3, "epsilon": 1.0},
    "smoothed.expected": lambda folder: {
        "n": 6, "vertices": [[0.25, 0.25, 0.5]], "sampled": 3, "epsilon": 1.0, "mechanism": "histogram",
        "sampling": None,
        "method": "monte_carlo", "draws": 30, "seed": 0,
    },
    "smoothed.expected_gradients": lambda folder: {
        "n": 4, "distributions": [np.array([0.5, 0.25, 0.25])], "sampled": 2, "epsilon": 1.0, "split": None,
        "draws": 30, "seed": 0,
    },
    "smoothed.gradient_profile": lambda folder: {"codes": [[1, 2], [3, 4], [1, 0]], "sampled": 2, "epsilon": 1.0, "levels": 8},
    "smoothed.guarantee": lambda folder: {"result": expectation(), "vertices": [0.25]},
    "smoothed.likely_ratio_probability": lambda folder: {"delta": 1e-6, "epsilon": 1.0},
    "smoothed.noisy_epsilon": lambda folder: {"epsilon": 1.0, "sampling_rate": 0.5},
    "smoothed.post_process": lambda folder: {"before": guarantee(), "name": "argmax"},
    "smoothed.profile": lambda folder: {"counts": [3, 4], "sampled": 3, "epsilon": 1.0},
    "smoothed.quantized_gaussian": lambda folder: {"mean": 0.0, "deviation": 0.1, "levels": 8},
    "smoothed.quantized_laplace": lambda folder: {"mean": 0.0, "deviation": 0.1, "levels": 8},
    "smoothed.utility": lambda folder: {"counts": [30, 40], "threshold": 0.51, "sampled": 30},
    "federated.FedAvgM": lambda folder: {"momentum": 0.9},
    "federated.FixedPointEncoding": lambda folder: {"clip": 1.0, "grid_bits": 8, "clip_norm": 1.0},
    "federated.GaussianEncoding": lambda folder: {
        "clip_norm": 1.0, "granularity": 0.1, "modulus_bits": 16, "deviation": 20.0, "seed": 0,
    },
    "federated.TableEncoding": lambda folder: {"mechanism": GRID, "clip_norm": 1.0, "seed": 0},
    "federated.WeightedEncoding": lambda folder: {
        "inner": mz.federated.FixedPointEncoding(clip=1.0, grid_bits=8), "most_examples": 10,
    },
    "federated.MetricsEncoding": lambda folder: {
        "inner": mz.federated.gaussian_encoding(clip_norm=1.0, clients=10, size=2, noise_multiplier=2.0),
        "ranges": (("loss", 0.0, 1.0),),
    },
    "federated.LifetimeLedger": lambda folder: {"path": fresh(folder), "identity": "ab"},
    "federated.RunLedger": lambda folder: {"path": fresh(folder), "facts": {}},
    "federated.Sums": lambda folder: {"size": 4, "clients": 10, "rounds": 1, "corrupted": 0, "delta": 1e-6},
    "federated.Policy": lambda folder: {
        "minimum": 2, "corrupted": 0.2, "roster": None, "report_epsilon": 1.0, "budget": 2.0, "delta": 1e-6,
        "mechanisms": None,
        "noise_multiplier": 0.0, "largest_value": 5.0, "clip_norm": None, "rounds": 8, "dealings": 9,
        "evaluate": False, "rehearse": None,
    },
    "federated.SecureStrategy": lambda folder: {
        "encoding": mz.federated.FixedPointEncoding(clip=1.0, grid_bits=8), "clients_per_round": 6, "corrupted": 0.2,
        "dropped": 0.2, "rounds": 8, "ahead": 5, "retries": 2, "most_rounds": 3,
    },
    "federated.LocalStrategy": lambda folder: {"scheme": codebook(), "clients_per_round": 6, "most_rounds": 3},
    "federated.gaussian_encoding": lambda folder: {
        "clip_norm": 1.0, "clients": 10, "size": 4, "epsilon": 2.0, "delta": 1e-6, "rounds": 1, "corrupted": 0,
        "seed": 0,
    },
    "training.Banded": lambda folder: {"bands": 4},
    "report.mechanism_page": lambda folder: {"mechanism": ONE_BIT, "file": "m.json"},
    "report.page_of": lambda folder: {"source": reports(folder), "column": None, "confidence": 0.95},
    "report.reports_page": lambda folder: {"source": reports(folder), "column": None, "confidence": 0.95},
    "datasets.breast_cancer": lambda folder: {"split": 0, "train_share": 0.8},
    "datasets.dirichlet_split": lambda folder: {"labels": np.arange(20) % 3, "clients": 3, "dirichlet": 1.0, "seed": 0},
    "papers.rqm_exact": lambda folder: {"levels": 4, "extension": 1, "q": 0.4},
    "papers.biased_selection": lambda folder: {
        "lower": -1, "upper": 1, "bins": [-2.0, -0.5, 0.5, 2.0], "left": [[1.0], [0.5, 0.5], [0.4, 0.3, 0.3]],
        "gamma": 1.0, "knots": 5,
    },
    "papers.optm_exact": lambda folder: {
        "epsilon": 1.0, "lower": -1, "upper": 1, "bins": [-3.0, -0.5, 0.5, 3.0], "loss": "mae", "prior": None,
    },
    "papers.published_discrete_gaussian_renyi": lambda folder: {"sigma": 2.0, "alpha": 2.0, "sensitivity": 1},
    "papers.published_discrete_laplace_epsilon": lambda folder: {"scale": 2.0, "sensitivity": 1},
    "papers.published_erm_epsilon": lambda folder: {"lower": -1, "upper": 1, "levels": 4, "extension": 1.0, "gamma": 1.0},
    "papers.published_erm_error": lambda folder: {"lower": -1, "upper": 1, "levels": 4, "extension": 1.0, "gamma": 1.0},
    "papers.published_pbm_mse": lambda folder: {"lower": -1, "upper": 1, "trials": 3, "theta": 0.25},
    "papers.published_rqm_epsilon": lambda folder: {"lower": -1, "upper": 1, "levels": 4, "extension": 1.0, "q": 0.4},
    "papers.published_skellam_renyi": lambda folder: {"variance": 4.0, "alpha": 2.0, "sensitivity": 1},
    "Mechanism.privatize": lambda folder: {"self": GRID, "x": [0.1], "rng": 1},
    "Mechanism.decode": lambda folder: {"self": GRID, "codes": np.array([0, 1], dtype=np.uint8)},
    "Mechanism.pmf": lambda folder: {"self": GRID, "x": [0.1]},
    "Mechanism.mean": lambda folder: {"self": GRID, "x": [0.1]},
    "Mechanism.variance": lambda folder: {"self": GRID, "x": [0.1]},
    "Mechanism.delta": lambda folder: {"self": GRID, "epsilon": 0.5},
    "Mechanism.renyi": lambda folder: {"self": GRID, "alpha": 2.0},
    "Mechanism.mse": lambda folder: {"self": GRID, "prior": [0.1, 0.2]},
    "Mechanism.mae": lambda folder: {"self": GRID, "prior": [0.1, 0.2]},
    "Mechanism.save": lambda folder: {"self": GRID, "path": fresh(folder)},
    "Mechanism.load": lambda folder: {"path": _saved(folder)},
    "Mechanism.from_json": lambda folder: {"text": GRID.to_json()},
    "vectors.RankedCodebook.encode": lambda folder: {"self": codebook(), "vectors": [0.1] * 8, "seed": 3},
    "vectors.RankedCodebook.decode": lambda folder: {"self": codebook(), "report": 1, "seed": 3},
    "vectors.RankedCodebook.mean": lambda folder: {"self": codebook(), "reports": [1, 2], "seeds": [3, 4]},
    "vectors.RankedSession.answer": lambda folder: {
        "self": mz.vectors.RankedSession(codebook(), client="ann", ledger=ledger(folder), budget=(90.0, 0.0)),
        "vector": [0.1] * 8, "round_number": 1, "slot": 2,
    },
    "privacy.Ledger.reserve": lambda folder: {
        "self": ledger(folder), "release": mz.privacy.Charge(identity="a", client="b", epsilon=1.0, delta=0.0),
        "budget": (9.0, 0.0),
    },
    "privacy.Ledger.charge": lambda folder: {
        "self": ledger(folder), "release": mz.privacy.Charge(identity="a", client="b", epsilon=1.0, delta=0.0),
    },
    "privacy.Ledger.spent": lambda folder: {"self": ledger(folder), "client": "b"},
    "collect.Counter.add": lambda folder: {"self": mz.collect.Counter(GRID), "reports": single_report()},
}  # fmt: skip
"""Public name -> parameters of a call that succeeds."""


def _saved(folder: Path) -> Path:
    path = folder / "m.json"
    if not path.exists():
        GRID.save(path)
    return path


def public(name: str) -> Any:
    """The public object of a dotted name below the package."""
    found: Any = mz
    for part in name.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            found = getattr(importlib.import_module(f"mezzotint.{part}"), part)
    return found


def annotations(name: str) -> dict[str, str]:
    """Parameter -> its annotation, as it is written."""
    signature = inspect.signature(public(name))
    return {
        parameter.name: str(parameter.annotation) for parameter in signature.parameters.values()
    }


BY_PLACE = (
    inspect.Parameter.POSITIONAL_ONLY,
    inspect.Parameter.POSITIONAL_OR_KEYWORD,
    inspect.Parameter.VAR_POSITIONAL,
)


def call(name: str, values: dict[str, Any]) -> Any:
    """The call with parameters by name, by place where they have no name."""
    function = public(name)
    parameters = inspect.signature(function).parameters
    places: list[Any] = []
    options = dict(values)
    for parameter in parameters.values():
        kind = parameter.kind
        if kind in BY_PLACE and parameter.name in options:
            places.append(options.pop(parameter.name))
    return function(*places, **options)


WRONG: dict[str, Any] = {
    "NaN": math.nan,
    "inf": math.inf,
    "-1": -1,
    "0": 0,
    "0.5": 0.5,
    "True": True,
    "'1'": "1",
    "nothing": "",
    "None": None,
    "[]": [],
    "huge": 10**400,
    "numpy NaN": np.float32(np.nan),
    "bytes": b"1",
    "object": object(),
    "complex": 1j,
    "[NaN]": [math.nan],
    "[None]": [None],
    "['1']": ["1"],
    "{}": {},
    "array": np.array(0.5),
    "ragged": [[1], [1, 2]],
}
"""What somebody may give in place of a value."""


@dataclasses.dataclass(frozen=True)
class OtherPath:
    """A path of another library."""

    path: str

    def __fspath__(self) -> str:
        return self.path


INTEGERS = (np.int8, np.uint64)
FLOATS = (np.float16, np.float32, np.longdouble, np.array)
EXACT = (Fraction, Decimal)


def twins(value: Any, annotation: str = "") -> Iterator[tuple[Any, Any]]:
    """Other spellings of a value, each with the plain one that it stands for."""
    if isinstance(value, bool):
        yield from ((make(value), value) for make in (np.bool_, np.array))
    elif isinstance(value, int | float):
        for make in _number_types(value, annotation):
            with contextlib.suppress(OverflowError, ValueError):
                spelling = make(value)
                yield spelling, type(value)(spelling)
    elif isinstance(value, str):
        yield np.str_(value), value
    elif isinstance(value, Path):
        yield str(value), value
        yield OtherPath(str(value)), value
    elif isinstance(value, bytes):
        yield bytearray(value), value
    elif isinstance(value, list | tuple) and value:
        yield tuple(value), list(value)
        array = array_of(value)
        if array is not None:
            yield from ((spelled, list(value)) for spelled in layouts(array))
        spellings = [list(twins(element, annotation)) for element in value]
        for pairs_of_elements in zip(*spellings, strict=False):
            spelled, plain = zip(*pairs_of_elements, strict=True)
            yield list(spelled), list(plain)


def array_of(value: Any) -> Any:
    """The array that a list of numbers or words is; None of what is none."""
    try:
        array = np.asarray(value)
    except ValueError:  # rows of several lengths
        return None
    words_alone = all(
        isinstance(element, str) for element in np.ravel(np.array(value, dtype=object))
    )
    return array if array.dtype.kind in "iuf" or words_alone else None


def layouts(array: Any) -> Iterator[Any]:
    """The same array, as it may lie in memory."""
    frozen = array.copy()
    frozen.setflags(write=False)
    spaced = np.repeat(array, 2, axis=-1)[..., ::2]
    swapped = array.astype(array.dtype.newbyteorder())
    yield from (frozen, spaced, swapped, np.asfortranarray(array), np.ma.array(array))


def degenerate(value: Any) -> Iterator[tuple[str, Any]]:
    """Arrays of the size of a value that nobody means, each with its name."""
    array = array_of(value) if isinstance(value, list | tuple) and value else value
    if not isinstance(array, np.ndarray) or array.size == 0:
        return
    is_first = np.arange(array.size).reshape(array.shape) == 0
    yield "no element", array[:0]
    yield "one element", array[:1]
    yield "one dimension more", array[None]
    yield "elements in rows", array[..., None]
    yield "the first one masked", np.ma.array(array, mask=is_first)
    yield "the first one None", np.where(is_first, None, array.astype(object))
    for number in (math.nan, math.inf, -math.inf, 1e308, 5e-324, 0.0, -1.0):
        yield f"all {number}", np.full(array.shape, number)
    for integer in (np.uint64(2**64 - 1), np.int64(-(2**63)), np.True_, np.complex64(1j)):
        yield f"all {integer}", np.full(array.shape, integer)
    yield "times", np.zeros(array.shape, "M8[s]")
    yield "text", array.astype(str)
    yield "bytes", array.tobytes()
    yield "a generator", (element for element in array)
    yield "a range", range(3)
    yield "records", np.zeros(3, [("a", "f8")])
    if array.dtype.kind in "iuf":
        yield "a view of memory", memoryview(np.ascontiguousarray(array))


def _number_types(value: float, annotation: str) -> Iterator[Callable[[Any], Any]]:
    yield from INTEGERS
    if (
        annotation == "Any" or "pa.Array" in annotation
    ):  # of columns, whose types are NumPy's or Arrow's
        return
    if isinstance(value, int) and "Array" in annotation:  # whose integers are no floats
        return
    yield from (*FLOATS, float)
    if "Rational" not in annotation and "Array" not in annotation:  # which reads decimals
        yield from EXACT


UNSEEDED = {
    "collect.new_memo_key",
    "vectors.own_seeds",
    "vectors.RankedCodebook.encode",
    "vectors.RankedSession.answer",
}
"""What draws anew at each call."""

TIMES_AND_PLACES = ("seconds", "path", "out", "token")


def content(result: Any) -> Any:
    """What a result says, in types that can be compared; without times and places."""
    if dataclasses.is_dataclass(result) and not isinstance(result, type):
        names = [
            each.name for each in dataclasses.fields(result) if each.name not in TIMES_AND_PLACES
        ]
        return type(result), [content(getattr(result, name, None)) for name in names]
    if isinstance(result, mz.Mechanism):
        return result.to_json()
    if isinstance(result, Mapping):
        return [(content(key), content(entry)) for key, entry in result.items()]
    if isinstance(result, list | tuple):
        return [content(entry) for entry in result]
    if isinstance(result, np.ndarray | np.generic):
        return result.tolist()
    if isinstance(result, str | int | float | Fraction | bytes | None):
        return result
    return type(result)


class Overtime(BaseException):
    """A call took longer than a user would wait for a refusal."""


@contextlib.contextmanager
def limited(seconds: int) -> Iterator[None]:
    def stop(*_: Any) -> None:
        raise Overtime

    earlier = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)  # of the processor, however busy the machine
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, earlier)


def outcome(name: str, values: dict[str, Any], seconds: int = 10) -> tuple[str, Any]:
    """What becomes of a call: "accepted" and the result, "refused" or "raw" and the error."""
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()), limited(seconds):
        warnings.simplefilter("ignore")
        try:
            return "accepted", call(name, values)
        except MezzotintError as error:
            return "refused", str(error)
        except Overtime:
            return "raw", f"no answer within {seconds} s"
        except Exception as error:
            return "raw", f"{type(error).__name__}: {error}"
