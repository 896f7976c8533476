"""The table of what a script may have (docs/training.md): each row is held by tests that are there."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[2]

HELD_BY = {
    "SGD, momentum, Nesterov, Adam, AdamW, RMSprop, Adagrad; foreach, fused": (
        "test_every_optimizer_takes_the_step_of_its_own",
        "test_kappa_is_claimed_only_where_it_holds",
    ),
    "LBFGS (evaluates a batch several times); custom samplers, `IterableDataset`, a list of batches; batch normalization": (
        "test_what_cannot_be_made_private",
    ),
    "`isinstance`, `param_groups`, `defaults`, `module.zero_grad()`, tensors in any memory order": (
        "test_it_is_an_optimizer",
        "test_sums_are_forgotten_whoever_clears_the_gradients",
        "test_parameters_in_any_memory_order",
    ),
    "`copy.deepcopy`": (
        "test_deepcopy",
        "test_copies_share_a_batch",
    ),
    "pickle, `torch.save` of the optimizer": (
        "test_pickled_copies_release_nothing",
        "test_pickle",
    ),
    "`state_dict`, `load_state_dict`": ("test_state_dict_round_trip",),
    "`add_param_group`": ("test_a_group_that_is_added_is_clipped_noised_and_projected",),
    "schedulers, also `SequentialLR`, `OneCycleLR`, `ReduceLROnPlateau`": (
        "test_schedulers_set_the_learning_rate",
        "test_plateaus",
    ),
    "step hooks": (
        "test_hooks_fire_once",
        "test_kappa_is_claimed_only_where_it_holds",
    ),
    "closures": ("test_closures_are_evaluated_once",),
    "Opacus's `BatchMemoryManager`": (
        "test_memory_manager_draws_noise_once_per_logical_batch",
        "test_a_batch_that_is_left_in_its_midst_is_dropped",
        "test_parts_without_a_step_are_refused",
    ),
    "several steps on a batch": (
        "test_steps_need_batches_of_their_own",
        "test_batches_that_workers_have_drawn_ahead_are_no_stock",
    ),
    "more rows of gradients than records in the batch": (
        "test_steps_of_more_records_than_the_batch_are_refused",
        "test_parts_of_more_records_than_the_batch_are_refused",
    ),
    "empty and partial batches, gradients that are NaN": (
        "test_empty_batches_are_steps",
        "test_partial_last_batches_over_epochs",
        "test_records_without_finite_gradients_stop_nothing_and_move_nothing",
    ),
    "several backward passes to a step": ("test_accumulated_batches_are_refused",),
    "bfloat16 modules": ("test_bfloat16_modules",),
    "`torch.autocast` in bfloat16 and float16": ("test_autocast",),
    "`GradScaler`": ("test_gradient_scalers_are_refused",),
    "CUDA": (
        "test_modules_on_a_gpu",
        "test_a_script_on_a_device",
        "test_sums_are_those_of_the_kernel",
        "test_words_lead_to_the_draws_of_the_kernel",
    ),
    "replicas in a process group": (
        "test_replicas_end_in_the_same_bits",
        "test_two_replicas_take_the_step_of_one_process",
    ),
    "`DistributedDataParallel`; FSDP, `fully_shard`; ghost clipping": (
        "test_sharded_and_ghost_modules_are_refused_by_name",
        "test_projection_works_under_opacus_s_own_engine",
    ),
    "`Banded`: correlated noise": (
        "test_a_script_with_bands",
        "test_what_bands_do_not_go_with",
    ),
    "frozen tensors, those that no optimizer trains": (
        "test_frozen_tensors_stay_as_they_are",
        "test_tensors_that_are_not_optimized_do_not_stop_the_others",
    ),
    "normalization layers, biases": ("test_norms_and_biases_stay_floats",),
    "tied weights": ("test_tied_weights_are_one_tensor",),
    "LoRA adapters, also of peft": (
        "test_adapters_are_trained_and_their_base_is_not",
        "test_adapters_of_peft",
    ),
    "loaders with workers, shuffling, `drop_last`": (
        "test_loaders",
        "test_batches_are_poisson_samples",
    ),
    "steps beyond the planned epochs": ("test_a_script_learns_and_stays_within_its_target",),
}
"""What a script may have, as the table of docs/training.md calls it, and the tests that hold what it says."""


def test_every_row_of_the_page_is_held_by_tests_that_are_there() -> None:
    lines = (ROOT / "docs/tables/training-script.md").read_text(encoding="utf-8").splitlines()
    rows = [line.strip("|").split("|")[0].strip() for line in lines[2:]]
    assert rows == list(HELD_BY)
    written = "".join(path.read_text() for path in (ROOT / "tests/training").glob("test_*.py"))
    for row, names in HELD_BY.items():
        assert names, row
        assert all(f"def {name}(" in written for name in names), row
