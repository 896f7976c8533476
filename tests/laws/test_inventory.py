"""Nothing that issues an epsilon, a delta or an interval goes without a law, unless a reason is written here."""

from __future__ import annotations

from laws.registry import judged
from laws.walk import issuers, records

WITHOUT_LAW: dict[str, tuple[str, ...]] = {
    "reads, checks or passes on a number that a caller gives, or that a record was made with: it computes none": (
        "privacy.propose.bound_document",
        "collect.intervals.within",
        "collect.charging.ledger_of", "collect.charging.RunCharge.release",
        "collect.reports.Origin.part", "collect.reports.origin_of",
        "collect.counts.total_of", "collect.counts.claim_of", "collect.folders.origin_and_charge",
        "design.problem.Problem.width",
        "design.problem.make_problem", "design.problem.pose", "design.problem.without_bound",
        "core.arguments.check_epsilon", "core.arguments.check_limit",
        "federated.encoding_files.encoding_from", "federated.encoding_files.load_encoding",
        "federated.encoding_files.unpacked", "federated.signer.lasting_ledger", "federated.signer.read_encoding",
        "federated.encoding.TableEncoding.scheme",
        "federated.policy.load_policy", "federated.settings.RunSettings.codebook",
        "federated.settings.RunSettings.encoding", "federated.settings.RunSettings.from_config",
        "federated.settings.RunSettings.load", "kernel.claim.ExactClaim.delta", "kernel.claim.ExactClaim.epsilon",
        "kernel.claim.ExactClaim.read",
        "kernel.claim.stamp", "kernel.measures.Grid.read",
        "kernel.claim.Target.read", "core.arguments.check_delta", "privacy.ledger.Ledger.releases",
        "privacy.charges.Priced.delta", "privacy.charges.Priced.epsilon", "privacy.charges.Charge.of",
        "core.loss.check_epsilon", "smoothed.model.read_loss", "smoothed.model.profile_of",
        "design.constraints.make_constraint", "design.problem.Problem.epsilon",
        "core.document.read_mechanism", "training.noise.Noise.phase", "training.private.Settings.budget",
        "vectors.ranked.RankedCodebook.from_json",
        "vectors.ranked.RankedCodebook.load", "vectors.rank_table.RankTable.from_dict",
        "vectors.ranked.RankedCodebook.certificate",
    ),
    "a published formula under its own name, false or said to be no guarantee: a law would fail; tests/ compare it": (
        "smoothed.expectations.noisy_epsilon", "smoothed.expectations.published_table1_noise_epsilon",
    ),
    "a float inside a search for a table: what is issued is read off the integers afterwards, by laws": (
        "design.cdf.design_cells", "design.cdf.CellProblem.program", "design.cdf.informative_table",
        "design.family_search.float_epsilon",
        "design.constraints.Constraint.spent", "design.constraints.Pure.spent",
        "design.constraints.Approximate.spent", "design.constraints.Renyi.spent",
        "design.constraints.AbsoluteMetric.spent", "design.constraints.SquaredMetric.spent",
        "design.cones.delta_part", "design.cones.renyi_part",
    ),
    "a choice among ways that are all sound, by floats: what follows from it has laws, whatever was chosen": (
        "privacy.sums.counts.interval_edges",
        "privacy.sums.counts.interval_spacings", "privacy.sums.pruning.on_ladder",
    ),
    "a step of `smoothed.expected`, whose law is about the whole: grids of chances, and the record that holds a result": (
        "smoothed.grids.Arithmetic.positive", "smoothed.grids.Arithmetic.zeros",
        "smoothed.grids.mixed", "smoothed.sampled_laws.sampled_rows", "smoothed.grids.weights_of",
        "smoothed.expectations.expected_record",
    ),
    "a bound on weights, chosen from public ones: it promises no privacy, and any value is sound": (
        "training.optimizers.derived_bound",
    ),
    "starts or holds a run: what it returns are `RunLedger.claims`, `Encoding.claims` and `RankedCodebook.claim`": (
        "federated.app.run_server", "federated.local_reports.LocalStrategy.claims",
        "federated.round_strategy.RoundStrategy.claims",
        "federated.simulation.simulate", "federated.secure_strategy.SecureStrategy.claims",
        "federated.app.prospective_strategy",
    ),
    "hands on, for the sums that took place, what an issuer with a law says of them: tests/federated compare the two": (
        "federated.encoding.Encoding.central", "federated.budgets.Claiming.central", "federated.dry_run.rehearse",
        "federated.encoding.SchemeEncoding.central",
        "federated.round_strategy.RoundStrategy.spent",
        "federated.budgets.with_evaluations",
    ),
    "Opacus's names for what `training.accountant.Accountant` says: tests/training/test_drop_in compares": (
        "training.engine.PrivacyEngine.accountant", "training.engine.PrivacyEngine.get_epsilon",
        "training.engine.PrivacyEngine.make_private_with_epsilon",
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
        "core.loss.pure_epsilon", "core.mechanism.Mechanism.epsilon", "core.mechanism.Mechanism.delta",
        "privacy.accounting.account", "vectors.tables.TableScheme.account", "collect.estimates.estimate",
        "collect.intervals.mean_interval", "smoothed.profiles.profile", "training.rqp.Steps.account",
        "privacy.ledger.Ledger.spent", "design.optimum.optimal", "families.noise.IntegerNoise.renyi",
    }  # fmt: skip
    assert known <= issuers()
    assert {"Claim", "Estimate", "Interval", "Profile", "DesignResult", "Spent"} <= records()
