"""Nothing that issues an epsilon, a delta or an interval goes without a law, unless a reason is written here."""

from __future__ import annotations

from laws.registry import judged
from laws.walk import issuers, records

WITHOUT_LAW: dict[str, tuple[str, ...]] = {
    "checks what a caller asks for, and issues nothing": (
        "design.levels.thinned", "design.problem.Problem.width", "design.problem.Problem.with_epsilon",
        "design.problem.make_problem",
        "families.inputs.positive_epsilon", "federated.encoding.files.encoding_from",
        "federated.encoding.files.load_encoding", "federated.encoding.files.unpacked", "federated.policy.load_policy",
        "federated.settings.RunSettings.encoding", "federated.settings.RunSettings.from_config",
        "federated.settings.RunSettings.load", "privacy.checks.check_delta", "privacy.ledger.Ledger.releases",
        "privacy.ledger.Priced.delta", "privacy.ledger.Priced.epsilon", "privacy.ledger.Charge.of",
        "privacy.loss.check_epsilon", "smoothed.model.read_loss",
        "federated.encoding.table.TableEncoding.scheme", "training.methods.Method.codes",
        "kernel.claim.Claim.delta", "kernel.claim.Claim.epsilon", "kernel.claim.Claim.read",
        "kernel.claim.Release.read", "kernel.claim.stamp", "kernel.losses.Grid.read", "kernel.one.Target.read",
        "vectors.ranked.scheme.RankedCodebook.from_json", "vectors.ranked.scheme.RankedCodebook.load",
        "vectors.ranked.scheme.RankedCodebook.epsilon",
        "vectors.ranked.table.RankTable.from_dict", "training.private.make_private",
    ),
    "a published formula under its own name, documented as no guarantee; tests/ compare it with the paper": (
        "families.erm.published_erm_epsilon", "families.noise.published_discrete_gaussian_renyi",
        "families.noise.published_discrete_laplace_epsilon", "families.noise.published_skellam_renyi",
        "families.rqm.published_rqm_epsilon", "privacy.shuffle.published_clones_epsilon",
        "smoothed.published.noisy_epsilon", "smoothed.published.published_table1_noise_epsilon",
        "training.rqp.published.published_epsilon", "training.rqp.utility.published_utility_bound",
    ),
    "passes on the pure epsilon of its tables, by `report_claim`, which has a law": (
        "collect.privatize.privatize", "collect.results.PrivatizeResult.epsilon", "collect.estimate.Estimate.epsilon",
        "collect.frequencies.Frequencies.epsilon", "collect.privatize.privatize_columns",
        "collect.results.of_one_column",
        "collect.results.result_of", "collect.runs.Run.execute",
    ),
    "chooses a mechanism; its epsilon is read off the table, whose losses have laws": (
        "design.cache.cache", "design.calibrate.calibrate", "design.compare.compare", "design.compare.tradeoff",
        "design.distribution.design_cells",
        "design.families.Search.dial", "design.families.Search.run", "design.families.float_epsilon",
        "design.fixed.design_fixed", "design.general.Setting.delta", "design.general.design_general",
        "design.general.make_setting", "design.general.refine_even", "design.general.spent", "design.mvu.imvu",
        "design.mvu.mvu", "design.optm.optm",
        "design.result.without_bound", "design.rounding.first_certified", "design.rounding.record",
        "design.vector.vector", "federated.encoding.noise.noise_encoding", "privacy.calibrate.calibrate",
        "vectors.advice.Advice.best", "vectors.advice.Option.epsilon",
        "vectors.calibration.calibrated_ranked", "vectors.calibration.calibrated_table",
        "vectors.ranked.design.ranked_codebook",
    ),
    "a lower bound on an error, not on privacy: below every feasible design by weak duality, in tests/design": (
        "design.bound.bound_at_levels", "design.fixed.floors_at", "design.floors.lower_bound", "design.limit.limit_of",
        "design.prove.Prover.shrunk", "design.prove.prove", "design.solver.safe_bound",
    ),
    "a step of a sum's bound: `central_epsilon` and `dominating_curve` have laws; twins in tests/privacy/sums": (
        "privacy.sums.central.PairLoss.deltas", "privacy.sums.central.PairLoss.epsilon",
        "privacy.sums.central.blanket_noise", "privacy.sums.central.pair_loss", "privacy.sums.central.silence",
        "privacy.sums.convolution.sum_bounds", "privacy.sums.cover.Cover.noises", "privacy.sums.cover.case_noises",
        "privacy.sums.cover.cover", "privacy.sums.curve.HockeyStick.best",
    ),
    "a step of a smoothed bound: `profile` and `expected` have laws, and its twin is in tests/smoothed": (
        "smoothed.kernels.log_delta", "smoothed.kernels.log_delta_window",
        "smoothed.kernels.log_deltas", "smoothed.many_types.RareType.log_bound",
        "smoothed.many_types.monte_carlo", "smoothed.many_types.summary", "smoothed.model.noise_bound",
        "smoothed.averages.continuous_average", "smoothed.averages.expected_gradients",
    ),
    "the kernel and its proposals have laws of their own beside them, in tests/kernel": (
        "kernel.check.check", "kernel.check.read_claim", "kernel.losses.curve_of", "kernel.losses.sampled_curves",
        "kernel.gaussian.gaussian_curve", "privacy.prove.prove", "privacy.release.Provable.propose",
        "training.rqp.accounting.Steps.propose", "vectors.ranked.scheme.RankedCodebook.propose",
        "privacy.propose.accepted",
        "privacy.propose.local_release",
        "privacy.propose.propose_local", "privacy.ranks.propose_ranks", "privacy.sums.propose.propose_sum",
        "training.rqp.propose.propose_training", "vectors.ranked.scheme.RankedCodebook.prove",
    ),
    "a description, or the interface of what is accounted: whoever implements it has laws": (
        "privacy.account.described", "privacy.release.Accountable.account", "training.rqp.accounting.training_release",
        "vectors.scheme.VectorScheme.account",
    ),
    "one table over orders: tests/vectors/test_ranked.py goes through all orders of all codewords": (
        "vectors.ranked.scheme.RankedCodebook.claim", "vectors.ranked.scheme.RankedCodebook.account",
        "vectors.ranked.table.rank_table",
    ),
    "shuffled reports: tests/privacy/test_shuffle.py enumerates all data sets of the others and all orders": (
        "privacy.shuffle.account_shuffled",
    ),
    "fixed-point sums without noise: epsilon is infinite, by definition": (
        "federated.encoding.fixed.FixedPointEncoding.claims",
        "federated.encoding.fixed.FixedPointEncoding.report_epsilon",
        "federated.encoding.noise.NoiseEncoding.report_epsilon", "federated.encoding.base.Encoding.report_epsilon",
    ),
    "a bound of a shape's interval: `estimate` has laws, coverage is in benchmarks/coverage.py and tests/collect": (
        "collect.frequencies.frequencies", "collect.shapes.Shapes.quantile", "collect.shapes.Shapes.share",
        "collect.shapes.Shapes.variance",
    ),
    "an interval by groups, or of two columns: coverage in tests/collect/test_groups.py": (
        "collect.groups.Part.interval", "collect.groups.difference", "collect.groups.parts_of",
        "collect.groups.stratified", "collect.groups.total", "collect.mean.half_width",
        "collect.pairs.PairCounts.expectation", "collect.pairs.means_within", "collect.pairs.two_way",
    ),
    "a run: its claims are those of its encoding or its phases, which have laws, for the rounds on its ledger": (
        "training.accountant.Accountant.claim", "training.rqp.accounting.Steps.claim",
        "training.accountant.Accountant.get_epsilon",
        "training.optimizers.NoisyOptimizer.contraction", "training.optimizers.derived_bound",
        "federated.settings.RunSettings.codebook", "federated.local.LocalStrategy.claims",
        "federated.rounds.RoundStrategy.claims", "federated.strategy.SecureStrategy.claims",
        "federated.app.run_server", "federated.ledger.RunLedger.claims", "federated.simulation.simulate",
        "training.methods.ClippedSGD.claim", "training.methods.Method.claim", "training.methods.NoisySGD.claim",
        "training.methods.RankedSGD.claim",
        "training.methods.QuantizedSGD.claim", "training.optimizers.ProjectedOptimizer.contraction",
        "training.trainer.Trainer.claim", "training.trainer.Trainer.progress", "training.trainer.Trainer.run",
    ),
    "a lower bound from an experiment, or an error bound: coverage and comparison in tests/training": (
        "training.audit.audit", "training.rqp.utility.utility_bound",
    ),
}  # fmt: skip


def test_every_issuer_has_a_law_or_a_reason() -> None:
    excused = {name for names in WITHOUT_LAW.values() for name in names}
    assert sorted(issuers() - set(judged()) - excused) == []


def test_laws_and_reasons_name_what_is_there() -> None:
    excused = [name for names in WITHOUT_LAW.values() for name in names]
    assert len(excused) == len(set(excused))
    assert sorted({*excused, *judged()} - issuers()) == []
    assert sorted(set(excused) & set(judged())) == []


def test_the_walk_finds_what_is_known_to_issue() -> None:
    """The walk itself can fail to see: a few names of every kind that it must find."""
    known = {
        "privacy.loss.pure_epsilon", "core.mechanism.Mechanism.epsilon", "core.mechanism.Mechanism.delta",
        "privacy.account.account", "vectors.tables.TableScheme.account", "collect.estimate.estimate",
        "collect.mean.safe_half_width", "smoothed.profiles.profile", "training.rqp.accounting.Steps.account",
        "privacy.ledger.Ledger.spent", "design.optimal.optimal", "families.noise.IntegerNoise.renyi",
    }  # fmt: skip
    assert known <= issuers()
    assert {"Claim", "Estimate", "Interval", "Profile", "DesignResult", "Spent"} <= records()
