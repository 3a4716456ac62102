"""The recipes of docs/how-to/trainers.md and text_models.md in the real trainers, on a CPU, with tiny models."""

import multiprocessing
import os
import re
import socket
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402

import rankrange.torch as rrt  # noqa: E402

PAGES = Path(__file__).parents[2] / "docs" / "how-to"
# What the trainers warn of at their own start is not ours to fix.
pytestmark = pytest.mark.filterwarnings("ignore")
WORDS, LENGTH = 40, 12


def run_section(heading, page="text_models.md", **names):
    """Run the code of one section of a page."""
    text = (PAGES / page).read_text(encoding="utf-8")
    section = re.split(rf"^##+ {re.escape(heading)}$", text, flags=re.MULTILINE)[1]
    section = re.split(r"^##+ ", section, flags=re.MULTILINE)[0]
    names |= {"torch": torch, "nn": nn, "rrt": rrt, "F": F}
    for code in re.findall(r"^```python\n(.*?)^```", section, flags=re.MULTILINE | re.DOTALL):
        exec(compile(code, f"{page}: {heading}", "exec"), names)
    return names


def corpus(n=24):
    g = torch.Generator().manual_seed(0)
    words = torch.randint(0, WORDS, (n, LENGTH), generator=g)
    labels = words.clone()
    labels[:, :3] = -100
    labels[1::2, 7:] = -100  # micro-batches of different numbers of tokens
    return [{"input_ids": row, "labels": y} for row, y in zip(words, labels, strict=True)]


def gpt2():
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        vocab_size=WORDS, n_positions=16, n_embd=8, n_layer=1, n_head=2, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0
    )
    return transformers.GPT2LMHeadModel(config)


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


def trainer_of(tmp_path, model, batch, accumulate, **options):
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    pytest.importorskip("accelerate", reason="accelerate is not installed")
    arguments = transformers.TrainingArguments(
        output_dir=str(tmp_path), per_device_train_batch_size=batch, gradient_accumulation_steps=accumulate,
        max_steps=3, learning_rate=0.1, optim="sgd", lr_scheduler_type="constant", report_to=[], use_cpu=True,
        logging_strategy="no", save_strategy="steps", save_steps=2, max_grad_norm=0.0, seed=0, disable_tqdm=True,
        remove_unused_columns=False,
    )  # fmt: skip
    names = run_section("Hugging Face Trainer and trl", model=model, arguments=arguments, dataset=corpus(), **options)
    return names


def test_hugging_face_checkpoints_hold_what_was_estimated(tmp_path):
    names = trainer_of(tmp_path, gpt2(), 4, 1, m="auto")
    names["trainer"].train()
    state = torch.load(tmp_path / "checkpoint-2" / "rankrange.pt", weights_only=True)
    assert state["_extra_state"]["batches"] == 2
    assert names["criterion"].batches == 3
    again = trainer_of(tmp_path, gpt2(), 4, 1, m="auto")
    again["trainer"].train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))
    assert again["criterion"].batches == 3


def trained(folder, m, batch, accumulate):
    """The parameters after three steps of the trainer over the rows in their order."""
    model = gpt2()
    trainer = trainer_of(Path(folder), model, batch, accumulate, m=m)["trainer"]
    trainer._get_train_sampler = lambda *_: torch.utils.data.SequentialSampler(trainer.train_dataset)
    trainer.train()
    return {name: parameter.detach() for name, parameter in model.named_parameters()}


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
    pytest.importorskip("accelerate", reason="accelerate is not installed")
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
    expected = [(0.0, 8, 1), (0.25, 4, 2), ("auto", 4, 2)]
    for i, case in enumerate(expected):
        one = trained(tmp_path / f"one{i}", *case)
        for process in found:
            torch.testing.assert_close(process[i], one, rtol=1e-4, atol=1e-6)


def test_lightning(tmp_path):
    lightning = pytest.importorskip("lightning", reason="lightning is not installed")
    names = run_section("Lightning", body=Embedded().body, head=nn.Linear(8, WORDS))
    module = names["TextModel"](Embedded(), 24)
    words = torch.stack([row["input_ids"] for row in corpus()])
    loader = torch.utils.data.DataLoader(rrt.WithIndex(torch.utils.data.TensorDataset(words)), batch_size=4)
    trainer = lightning.Trainer(
        max_epochs=2, accelerator="cpu", logger=False, enable_progress_bar=False, enable_model_summary=False,
        default_root_dir=str(tmp_path),
    )  # fmt: skip
    trainer.fit(module, loader)
    assert module.criterion.batches == 12
    path = next(tmp_path.rglob("*.ckpt"))
    saved = torch.load(path, weights_only=False)["state_dict"]
    assert saved["criterion._extra_state"]["batches"] == 12
    assert saved["criterion.history.visits"][:24].tolist() == [2] * 24


@pytest.mark.parametrize("compiled", [False, True])
def test_a_plain_loop_also_compiled_and_checkpointed(compiled):
    torch._dynamo.reset()
    model = Embedded()
    words = torch.stack([row["input_ids"] for row in corpus()])
    before = F.cross_entropy(model.head(model.body(words[:, :-1])).reshape(-1, WORDS), words[:, 1:].reshape(-1))
    if compiled:
        model.body = Checkpointed(torch.compile(model.body, backend="aot_eager", fullgraph=True))
    batches = [(words[i : i + 4], torch.arange(i, i + 4)) for i in range(0, 24, 4)] * 10
    names = run_section("A plain loop", model=model, batches=batches, n_documents=24)
    assert names["loss"] < before - 0.3
    assert names["criterion"].history.visits[:-1].tolist() == [10] * 24


# --- trainers.md


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


def test_lightning_on_wrong_labels():
    lightning = pytest.importorskip("lightning", reason="lightning is not installed")
    dataset, clean = noisy_dataset()
    module = run_section("Lightning", "trainers.md")["RobustClassifier"](nn.Linear(20, 3), len(dataset))
    trainer = lightning.Trainer(
        max_epochs=8, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False,
    )  # fmt: skip
    trainer.fit(module, torch.utils.data.DataLoader(rrt.WithIndex(dataset), batch_size=64))
    assert share_of_errors(module.criterion, dataset, clean) > 0.8
    assert trainer.callback_metrics["train_loss"] > 0
    assert trainer.callback_metrics["rankrange/suspects"] > 0
    assert module.state_dict()["criterion.auto.history.rows"].shape == (len(dataset) + 1, 3)


def test_skorch():
    pytest.importorskip("skorch", reason="skorch is not installed")
    dataset, clean = noisy_dataset()
    torch.manual_seed(0)
    x, y = (part.numpy() for part in dataset.tensors)
    net = run_section("skorch", "trainers.md")["robust_net"](len(x))
    net.fit({"features": x, "index": torch.arange(len(x)).numpy()}, y)
    assert share_of_errors(net.criterion_, dataset, clean) > 0.8
