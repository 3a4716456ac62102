"""The recipes of works_with.md and text_models.md, and the callback, in real trainers, on a CPU, with tiny models."""

import multiprocessing
import os
import re
import socket
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import rankrange.torch as rrt
from rankrange.torch.callbacks import hugging_face_callback

PAGES = Path(__file__).parents[2] / "docs" / "how-to"
# What the trainers warn of at their own start is not ours to fix.
pytestmark = pytest.mark.filterwarnings("ignore")
WORDS, LENGTH, N = 40, 12, 24


def run_section(heading, page="text_models.md", **names):
    """Run the code of one section of a page, by the first words of its heading."""
    sections = re.split(r"^##+ ", (PAGES / page).read_text(encoding="utf-8"), flags=re.MULTILINE)
    section = next(section for section in sections if section.startswith(heading))
    names |= {"torch": torch, "nn": nn, "rrt": rrt, "F": F}
    for code in re.findall(r"^```python\n(.*?)^```", section, flags=re.MULTILINE | re.DOTALL):
        exec(compile(code, f"{page}: {heading}", "exec"), names)
    return names


def corpus():
    """Words and labels; micro-batches have different numbers of tokens that count."""
    words = torch.randint(3, WORDS, (N, LENGTH), generator=torch.Generator().manual_seed(0))
    labels = words.clone()
    labels[:, :3] = -100
    labels[1::2, 7:] = -100
    return words, labels


def gpt2():
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        vocab_size=WORDS, n_positions=16, n_embd=8, n_layer=1, n_head=2, resid_pdrop=0.0, embd_pdrop=0.0,
        attn_pdrop=0.0, pad_token_id=0, eos_token_id=1, bos_token_id=1,
    )  # fmt: skip
    return transformers.GPT2LMHeadModel(config)


def arguments_of(kind, folder, **options):
    """Plain gradient descent over a few batches."""
    usual = {
        "max_steps": 3,
        "learning_rate": 0.1,
        "optim": "sgd",
        "lr_scheduler_type": "constant",
        "max_grad_norm": 0.0,
        "save_strategy": "no",
        "remove_unused_columns": False,
        "disable_tqdm": True,
    }
    return kind(output_dir=str(folder), report_to=[], use_cpu=True, seed=0, **(usual | options))


def parameters_after(trainer):
    trainer.train()
    return [parameter.detach().clone() for parameter in trainer.model.parameters()]


# --- the Trainer of transformers


class Classifier(nn.Module):
    """A model as the Trainer calls one: keywords in, logits out."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(4, 2)

    def forward(self, x, labels=None):
        return {"logits": self.head(x)}


def classifying_trainer(folder, criterion, **options):
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    x = torch.randn(N, 4, generator=torch.Generator().manual_seed(0))
    rows = [{"x": a, "labels": b} for a, b in zip(x, (x[:, 0] > 0.3).long(), strict=True)]
    arguments = arguments_of(transformers.TrainingArguments, folder, **options)
    trainer = transformers.Trainer(Classifier(), arguments, train_dataset=rrt.WithIndex(rows), eval_dataset=rows)
    hugging_face_callback(criterion).attach(trainer)
    return trainer, x


@pytest.mark.parametrize(("m", "accumulate"), [(0.25, 1), (0.0, 4)])
def test_the_trainer_takes_the_step_of_the_ranked_range(m, accumulate, tmp_path):
    criterion = rrt.AoRRLoss(nn.CrossEntropyLoss(reduction="none"), m=m)
    size = {"per_device_train_batch_size": N // accumulate, "gradient_accumulation_steps": accumulate}
    trainer, x = classifying_trainer(tmp_path, criterion, max_steps=1, **size)
    start = [parameter.detach().clone() for parameter in trainer.model.parameters()]
    losses = F.cross_entropy(trainer.model(x)["logits"], (x[:, 0] > 0.3).long(), reduction="none")
    expected = losses.sort(descending=True).values[round(m * N) :].mean()
    gradients = torch.autograd.grad(expected, list(trainer.model.parameters()))
    for old, new, gradient in zip(start, parameters_after(trainer), gradients, strict=True):
        torch.testing.assert_close(new, old - 0.1 * gradient, rtol=1e-4, atol=1e-5)
    assert trainer.evaluate()["eval_loss"] > 0


def trainer_of(folder, m, batch=4, accumulate=1):
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    arguments = arguments_of(
        transformers.TrainingArguments, folder, per_device_train_batch_size=batch, logging_strategy="no",
        gradient_accumulation_steps=accumulate, save_strategy="steps", save_steps=2,
    )  # fmt: skip
    dataset = [{"input_ids": row, "labels": y} for row, y in zip(*corpus(), strict=True)]
    return run_section("Hugging Face Trainer and trl", model=gpt2(), arguments=arguments, dataset=dataset, m=m)


def test_hugging_face_checkpoints_hold_what_was_estimated(tmp_path):
    names = trainer_of(tmp_path, "auto")
    names["trainer"].train()
    state = torch.load(tmp_path / "checkpoint-2" / "rankrange.pt", weights_only=True)
    assert state["_extra_state"]["batches"] == 2
    assert names["criterion"].batches == 3
    again = trainer_of(tmp_path, "auto")
    again["trainer"].train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))
    assert again["criterion"].batches == 3


def trained(folder, m, batch, accumulate):
    """The parameters after three steps of the trainer over the rows in their order."""
    trainer = trainer_of(Path(folder), m, batch, accumulate)["trainer"]
    trainer._get_train_sampler = lambda *_: torch.utils.data.SequentialSampler(trainer.train_dataset)
    return parameters_after(trainer)


def one_of_two(rank, port, folder, cases):
    """A process as launchers start it: the trainer finds the others by the environment."""
    places = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": 2, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    os.environ.update({name: str(value) for name, value in places.items()} | {"ACCELERATE_USE_CPU": "true"})
    torch.set_num_threads(1)
    found = [trained(f"{folder}/{rank}{i}", *case) for i, case in enumerate(cases)]
    assert torch.distributed.get_world_size() == 2
    torch.save(found, f"{folder}/{rank}.pt")


@pytest.mark.skipif(not torch.distributed.is_gloo_available(), reason="this PyTorch was built without gloo")
def test_hugging_face_trainer_in_two_processes_takes_the_steps_of_one(tmp_path):
    """Two processes of two rows, accumulated twice: one process of four rows accumulated twice; if m = 0, of eight."""
    pytest.importorskip("transformers", reason="transformers is not installed")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    cases = [(m, 2, 2) for m in (0.0, 0.25, "auto")]
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=one_of_two, args=(rank, port, str(tmp_path), cases)) for rank in range(2)]
    try:
        for process in processes:
            process.start()
        for process in processes:
            process.join(300)
    finally:
        for process in processes:
            process.kill()
            process.join()
    found = [torch.load(tmp_path / f"{rank}.pt", weights_only=True) for rank in range(2)]
    for i, case in enumerate([(0.0, 8, 1), (0.25, 4, 2), ("auto", 4, 2)]):
        one = trained(tmp_path / f"one{i}", *case)
        for process in found:
            torch.testing.assert_close(process[i], one, rtol=1e-4, atol=1e-6)


# --- the SFTTrainer of trl


def fine_tuning(folder, criterion, **options):
    trl = pytest.importorskip("trl", reason="trl is not installed")
    import datasets
    import tokenizers
    import transformers

    vocabulary = {"<pad>": 0, "<eos>": 1, "<unk>": 2}
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="<unk>")),
        pad_token="<pad>", eos_token="<eos>",
    )  # fmt: skip
    words, labels = (part.tolist() for part in corpus())
    answers = [[int(label != -100) for label in row] for row in labels]
    rows = datasets.Dataset.from_dict({"input_ids": words, "completion_mask": answers, "index": list(range(N))})
    usual = {"per_device_train_batch_size": 4, "logging_steps": 1, "gradient_checkpointing": False, "bf16": False}
    arguments = arguments_of(trl.SFTConfig, folder, **(usual | options))
    trainer = trl.SFTTrainer(gpt2(), arguments, train_dataset=rows, eval_dataset=rows, processing_class=tokenizer)
    if criterion is not None:
        hugging_face_callback(criterion).attach(trainer)
    return trainer


def test_without_a_cut_steps_and_evaluation_are_those_of_trl(tmp_path):
    """m = 0 is the mean over all tokens of the answers, accumulated or not; evaluation is always that."""
    for accumulate in (1, 2):
        own, ours = (
            fine_tuning(tmp_path / f"{accumulate}{i}", criterion, gradient_accumulation_steps=accumulate)
            for i, criterion in enumerate((None, rrt.LinearAoRRLoss(0.0)))
        )
        torch.testing.assert_close(parameters_after(ours), parameters_after(own), rtol=1e-4, atol=1e-6)
        assert ours.evaluate()["eval_loss"] == pytest.approx(own.evaluate()["eval_loss"], rel=1e-4)


def test_documents_are_remembered_by_their_index_and_figures_are_logged(tmp_path):
    criterion = rrt.LinearAoRRLoss("auto", per="sequence", n_documents=N)
    trainer = fine_tuning(tmp_path, criterion, max_steps=-1, num_train_epochs=2, shuffle_dataset=True)
    assert trainer.train_dataset["index"] != list(range(N))
    trainer.train()
    assert criterion.history.visits[:N].tolist() == [2] * N
    logged = {name for entry in trainer.state.log_history for name in entry}
    assert {"rankrange/kept", "rankrange/share", "rankrange/suspects"} <= logged


def test_what_cannot_be_trained_is_refused(tmp_path):
    automatic = rrt.AoRRLoss(nn.CrossEntropyLoss(reduction="none"), m="auto", n_samples=N)
    with pytest.raises(ValueError, match=r"remove_unused_columns=False"):
        classifying_trainer(tmp_path, automatic, remove_unused_columns=True)
    with pytest.raises(ValueError, match="LinearAoRRLoss"):
        fine_tuning(tmp_path, automatic)
    trainer = fine_tuning(tmp_path, rrt.LinearAoRRLoss(0.1, softcap=0.01))
    with pytest.raises(ValueError, match="softcap="):
        trainer.train()


# --- Lightning, skorch and plain loops


class Embedded(nn.Module):
    """A body and a head of its own, for the recipes that need no library."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Embedding(WORDS, 8), nn.Linear(8, 8), nn.Tanh())
        self.head = nn.Linear(8, WORDS, bias=False)


class Checkpointed(nn.Module):
    """Activations are computed again in the backward pass."""

    def __init__(self, body):
        super().__init__()
        self.body = body

    def forward(self, x):
        return torch.utils.checkpoint.checkpoint(self.body, x, use_reentrant=False)


def test_the_first_lines_of_the_page_and_the_weights_of_tokens():
    names = run_section("Weights of tokens", **run_section("# Train a language model"))
    assert names["loss"].isfinite()
    assert 0 < names["p"].min() < names["p"].max() < 1


@pytest.mark.parametrize("compiled", [False, True])
def test_a_plain_loop_also_compiled_and_checkpointed(compiled):
    torch._dynamo.reset()
    model, (words, _) = Embedded(), corpus()
    before = F.cross_entropy(model.head(model.body(words[:, :-1])).reshape(-1, WORDS), words[:, 1:].reshape(-1))
    if compiled:
        model.body = Checkpointed(torch.compile(model.body, backend="aot_eager", fullgraph=True))
    batches = [(words[i : i + 4], torch.arange(i, i + 4)) for i in range(0, N, 4)] * 10
    names = run_section("A plain loop", model=model, batches=batches, n_documents=N)
    assert names["loss"] < before - 0.3
    assert names["criterion"].history.visits[:-1].tolist() == [10] * N


def test_the_plain_loop_runs_as_pasted():
    names = run_section("A plain loop", **run_section("A model to try it on"))
    assert names["loss"].isfinite()
    assert names["criterion"].history.visits[:8].tolist() == [1] * 8


def noisy_dataset(n=3840, flipped=0.2):
    """A linear problem with three classes and some labels wrong; and the same labels clean."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(n, 20, generator=generator)
    clean = (x @ torch.randn(20, 3, generator=generator)).argmax(1)
    wrong = torch.rand(n, generator=generator) < flipped
    return torch.utils.data.TensorDataset(x, torch.where(wrong, (clean + 1) % 3, clean)), clean


def share_of_errors(criterion, dataset, clean):
    """How much of the eighth that is most suspect is wrong."""
    worst = criterion.sample_weights().argsort()[: len(clean) // 8]
    return (dataset.tensors[1] != clean)[worst].float().mean()


def lightning_trainer(folder, epochs):
    lightning = pytest.importorskip("lightning", reason="lightning is not installed")
    return lightning.Trainer(
        max_epochs=epochs, accelerator="cpu", logger=False, enable_progress_bar=False, enable_model_summary=False,
        default_root_dir=str(folder),
    )  # fmt: skip


def test_lightning_on_text(tmp_path):
    trainer = lightning_trainer(tmp_path, 2)
    module = run_section("Lightning")["TextModel"](Embedded(), N)
    dataset = rrt.WithIndex(torch.utils.data.TensorDataset(corpus()[0]))
    trainer.fit(module, torch.utils.data.DataLoader(dataset, batch_size=4))
    assert module.criterion.batches == 12
    saved = torch.load(next(tmp_path.rglob("*.ckpt")), weights_only=False)["state_dict"]
    assert saved["criterion._extra_state"]["batches"] == 12
    assert saved["criterion.history.visits"][:N].tolist() == [2] * N


def test_lightning_on_wrong_labels(tmp_path):
    trainer, (dataset, clean) = lightning_trainer(tmp_path, 8), noisy_dataset()
    module = run_section("Lightning\n", "works_with.md")["RobustClassifier"](nn.Linear(20, 3), len(dataset))
    trainer.fit(module, torch.utils.data.DataLoader(rrt.WithIndex(dataset), batch_size=64))
    assert share_of_errors(module.criterion, dataset, clean) > 0.8
    assert trainer.callback_metrics["train_loss"] > 0
    assert trainer.callback_metrics["rankrange/suspects"] > 0


def test_skorch():
    pytest.importorskip("skorch", reason="skorch is not installed")
    dataset, clean = noisy_dataset()
    torch.manual_seed(0)
    x, y = (part.numpy() for part in dataset.tensors)
    net = run_section("skorch", "works_with.md")["robust_net"](len(x))
    net.fit({"features": x, "index": torch.arange(len(x)).numpy()}, y)
    assert share_of_errors(net.criterion_, dataset, clean) > 0.8
