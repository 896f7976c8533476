"""Models of transformers: fine-tuned right, or refused before anything is spent."""

from __future__ import annotations

from typing import Any

import pytest

from mezzotint import ParameterError, training

torch = pytest.importorskip("torch")
pytest.importorskip("opacus")
transformers = pytest.importorskip("transformers")

pytestmark = [
    pytest.mark.filterwarnings("ignore:Full backward hook is firing"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]

SIZES = {"vocab_size": 50, "num_labels": 2, "pad_token_id": 0}


def gpt2() -> Any:
    config = transformers.GPT2Config(
        n_positions=16, n_embd=16, n_layer=1, n_head=2, bos_token_id=1, eos_token_id=2, **SIZES
    )
    return transformers.GPT2ForSequenceClassification(config)


def bert() -> Any:
    config = transformers.BertConfig(
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=16,
        **SIZES,
    )
    return transformers.BertForSequenceClassification(config)


def distilbert() -> Any:
    config = transformers.DistilBertConfig(
        dim=16, n_layers=1, n_heads=2, hidden_dim=32, max_position_embeddings=16, **SIZES
    )
    return transformers.DistilBertForSequenceClassification(config)


CASES = [
    (gpt2, "transformer.wpe"),
    (bert, "bert.embeddings.position_embeddings"),
    (distilbert, "distilbert.embeddings.position_embeddings"),
]


def loss(module: Any, batch: Any) -> Any:
    outputs = module(input_ids=batch["input_ids"])
    return torch.nn.functional.cross_entropy(outputs.logits, batch["labels"])


@pytest.mark.parametrize(("build", "positions"), CASES)
def test_positions_are_refused_by_name_and_marked_ones_are_right(
    build: Any, positions: str
) -> None:
    torch.manual_seed(0)
    batch = {"input_ids": torch.randint(1, 50, (7, 8)), "labels": torch.arange(7) % 2}
    with pytest.raises(ParameterError, match=f"1 row in {positions}.weight"):
        training.check_records(build().train(), loss, batch)
    table = training.check_records(training.records_first(build().train(), positions), loss, batch)
    assert table.differences
    # Sums of 32-bit floats in another order.
    assert max(table.differences.values()) < 1e-5


@pytest.mark.parametrize(("build", "positions"), CASES)
@pytest.mark.filterwarnings("ignore:In CPU autocast")  # of torch, where a library switches it off
def test_a_script_fine_tunes_a_marked_model(build: Any, positions: str) -> None:
    torch.manual_seed(0)
    records = [
        {"input_ids": torch.randint(1, 50, (8,)), "labels": torch.tensor(i % 2)} for i in range(40)
    ]
    loader = torch.utils.data.DataLoader(records, batch_size=8)
    module = build().train()
    optimizer = torch.optim.AdamW(module.parameters(), lr=1e-3)
    settings = {"noise_multiplier": 1.0, "delta": 1e-5}
    with pytest.raises(ParameterError, match=f"1 row in {positions}.weight"):
        training.make_private(module, optimizer, loader, **settings)
    training.records_first(module, positions)
    private, optimizer, batches, accountant = training.make_private(
        module, optimizer, loader, **settings
    )
    for batch in batches:
        optimizer.zero_grad()
        private(**batch).loss.backward()
        optimizer.step()
    assert len(accountant) == 5
    assert private.config.vocab_size == 50
