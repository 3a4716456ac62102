"""The callback in trl's SFTTrainer, on a CPU, with a tiny model made from its configuration."""

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("trl", reason="trl is not installed")
import datasets  # noqa: E402
import tokenizers  # noqa: E402
import torch.nn.functional as F  # noqa: E402
import transformers  # noqa: E402
import trl  # noqa: E402

import rankrange.torch as rrt  # noqa: E402
from rankrange.torch.callbacks import hugging_face_callback  # noqa: E402

# What the trainers warn of at their own start is not ours to fix.
pytestmark = pytest.mark.filterwarnings("ignore")
WORDS = [f"w{i}" for i in range(30)]
N = 16


def tokenizer():
    vocabulary = {word: i for i, word in enumerate(["<pad>", "<eos>", "<unk>", *WORDS])}
    model = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="<unk>"))
    model.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=model, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>"
    )


def model():
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        vocab_size=len(WORDS) + 3, n_positions=24, n_embd=8, n_layer=1, n_head=2,
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, pad_token_id=0, eos_token_id=1, bos_token_id=1,
    )  # fmt: skip
    return transformers.GPT2LMHeadModel(config)


def rows():
    """Prompts with answers of different lengths: the answers alone count."""
    g = torch.Generator().manual_seed(1)
    words = torch.randint(0, len(WORDS), (N, 9), generator=g)
    texts = [[WORDS[i] for i in row] for row in words.tolist()]
    answers = [" " + " ".join(row[4 : 6 + i % 4]) + " " for i, row in enumerate(texts)]
    return datasets.Dataset.from_dict(
        {"prompt": [" ".join(row[:4]) for row in texts], "completion": answers, "index": list(range(N))}
    )


def trainer_of(folder, criterion, **options):
    usual = {
        "per_device_train_batch_size": 4,
        "max_steps": 3,
        "learning_rate": 0.5,
        "optim": "sgd",
        "lr_scheduler_type": "constant",
        "max_grad_norm": 0.0,
        "logging_steps": 1,
        "save_strategy": "no",
        "remove_unused_columns": False,
        "gradient_checkpointing": False,
    }
    arguments = trl.SFTConfig(
        output_dir=str(folder), report_to=[], use_cpu=True, bf16=False, disable_tqdm=True, **(usual | options)
    )
    trainer = trl.SFTTrainer(
        model(), arguments, train_dataset=rows(), eval_dataset=rows(), processing_class=tokenizer()
    )
    if criterion is not None:
        hugging_face_callback(criterion).attach(trainer)
    return trainer


def parameters_after(trainer):
    trainer.train()
    return [parameter.detach().clone() for parameter in trainer.model.parameters()]


def test_without_a_cut_the_steps_are_those_of_trl(tmp_path):
    """m = 0 is the mean over all tokens of the answers, accumulated or not."""
    for i, accumulate in enumerate((1, 2)):
        options = {"gradient_accumulation_steps": accumulate}
        own = parameters_after(trainer_of(tmp_path / f"own{i}", None, **options))
        ours = parameters_after(trainer_of(tmp_path / f"ours{i}", rrt.LinearAoRRLoss(0.0), **options))
        torch.testing.assert_close(ours, own, rtol=1e-4, atol=1e-6)


def test_a_step_is_that_of_the_kept_tokens(tmp_path):
    trainer = trainer_of(tmp_path, rrt.LinearAoRRLoss(0.25, key="loss"), max_steps=1, per_device_train_batch_size=N)
    start = [parameter.detach().clone() for parameter in trainer.model.parameters()]
    batch = trainer.data_collator([trainer.train_dataset[i] for i in range(N)])
    counted = batch["labels"][:, 1:] != -100
    logits = trainer.model(batch["input_ids"], attention_mask=batch["attention_mask"]).logits[:, :-1]
    losses = F.cross_entropy(logits[counted], batch["labels"][:, 1:][counted], reduction="none")
    expected = losses.sort(descending=True).values[round(0.25 * len(losses)) :].mean()
    gradient = torch.autograd.grad(expected, list(trainer.model.parameters()))
    trainer.train()
    kept = next(entry["rankrange/kept"] for entry in trainer.state.log_history if "rankrange/kept" in entry)
    assert kept == pytest.approx(0.75, abs=0.02)
    for old, new, g in zip(start, trainer.model.parameters(), gradient, strict=True):
        torch.testing.assert_close(new.detach(), old - 0.5 * g, rtol=1e-3, atol=1e-5)


def test_documents_are_remembered_by_their_index_and_figures_are_logged(tmp_path):
    criterion = rrt.LinearAoRRLoss("auto", per="sequence", n_documents=N)
    trainer = trainer_of(tmp_path, criterion, max_steps=-1, num_train_epochs=2, shuffle_dataset=True)
    assert trainer.train_dataset["index"] != list(range(N))
    trainer.train()
    assert criterion.history.visits[:N].tolist() == [2] * N
    logged = {name for entry in trainer.state.log_history for name in entry}
    assert {"rankrange/kept", "rankrange/share", "rankrange/suspects"} <= logged


def test_evaluation_is_the_mean_of_all_tokens(tmp_path):
    own = trainer_of(tmp_path, None).evaluate()["eval_loss"]
    assert trainer_of(tmp_path, rrt.LinearAoRRLoss(0.5)).evaluate()["eval_loss"] == pytest.approx(own)


def test_what_cannot_be_trained_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"remove_unused_columns=False"):
        trainer_of(tmp_path, rrt.LinearAoRRLoss("auto"), remove_unused_columns=True)
    with pytest.raises(ValueError, match="LinearAoRRLoss"):
        trainer_of(tmp_path, rrt.AoRRLoss(torch.nn.CrossEntropyLoss(reduction="none"), m=1))
    with pytest.raises(ValueError, match="packing=True"):
        trainer_of(tmp_path, rrt.LinearAoRRLoss(0.1, per="sequence"), packing=True, max_length=16)
    trainer = trainer_of(tmp_path, rrt.LinearAoRRLoss(0.1, softcap=0.01))
    with pytest.raises(ValueError, match="softcap="):
        trainer.train()
