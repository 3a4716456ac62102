"""
Which letters of a damaged text does a language model distrust?
===============================================================

A tenth of the letters of a text was replaced by random ones. A model that is trained on it learns to expect noise
everywhere. With ``m="auto"`` the loss estimates how much of the text is noise, from how often the model finds a letter
less likely than most others, and gives those letters a small weight.
"""

import argparse
import inspect
import os
import textwrap

import matplotlib.pyplot as plt
import torch
from torch import nn

import rankrange.torch as rrt

small = bool(os.environ.get("RANKRANGE_SMALL"))
torch.manual_seed(0)

# %%
# The text is a piece of Python's own library, letter by letter. The model sees five letters and predicts the next.
source = inspect.getsource(argparse) + inspect.getsource(textwrap)
clean = torch.tensor([min(ord(letter), 127) for letter in source])
wrong = torch.rand(len(clean)) < 0.1
text = torch.where(wrong, torch.randint(0, 128, clean.shape), clean)
context = 5


class NextLetter(nn.Module):
    def __init__(self):
        super().__init__()
        self.letters, self.hidden = nn.Embedding(128, 24), nn.Linear(24 * context, 128)
        self.head = nn.Linear(128, 128, bias=False)

    def forward(self, words):
        return torch.tanh(self.hidden(self.letters(words).flatten(1)))


# %%
# Only the loss changes. Its inputs are the input and the weight matrix of the last layer.
def train(criterion):
    torch.manual_seed(0)
    model, losses = NextLetter(), []
    optimizer = torch.optim.Adam(model.parameters(), 0.004)
    for _ in range(150 if small else 900):
        end = torch.randint(context, len(text), (512,))
        words = text[end[:, None] + torch.arange(-context, 0)]
        optimizer.zero_grad()
        criterion(model(words), model.head.weight, text[end]).backward()
        optimizer.step()
    with torch.no_grad():
        end = torch.arange(context, len(clean))[:: 7 if small else 3]
        end = end[~wrong[end[:, None] + torch.arange(-context, 1)].any(1)]
        hidden = model(clean[end[:, None] + torch.arange(-context, 0)])
        losses = nn.functional.cross_entropy(model.head(hidden), clean[end])
    return model, float(losses)


automatic = rrt.LinearAoRRLoss("auto")
plain, cut = train(rrt.LinearAoRRLoss())[1], train(automatic)
print(f"clean text, nats per letter: all letters {plain:.3f}, m='auto' {cut[1]:.3f}")
print(f"estimated share of noise: {float(automatic.share):.3f} (true: 0.1)")

# %%
# Letters that the trained loss leaves out are red; those that were replaced are underlined.
start, columns, lines = 3000, 64, 9
end = torch.arange(start, start + columns * lines)
with torch.no_grad():
    automatic.eval()(cut[0](text[end[:, None] + torch.arange(-context, 0)]), cut[0].head.weight, text[end])
weights = automatic.last_weights

figure, axis = plt.subplots(figsize=(9, 2.6), layout="constrained")
for place, (letter, weight) in enumerate(zip(text[end].tolist(), weights.tolist(), strict=True)):
    x, y = place % columns, -(place // columns)
    shown = chr(letter) if 32 < letter < 127 else "·" if letter in (10, 32) else "□"
    colour = "tab:red" if weight < 0.5 else "0.8" if shown == "·" else "black"
    axis.text(x, y, {"$": r"\$"}.get(shown, shown), color=colour, family="monospace", ha="center", va="center")
missed = wrong[end].nonzero()[:, 0]
axis.plot(missed % columns, -(missed // columns) - 0.42, "_", color="tab:blue", label="was replaced")
axis.set(xlim=(-1, columns), ylim=(-lines + 0.3, 0.8), title="Red: left out by m='auto'")
axis.legend(loc="upper right", bbox_to_anchor=(1, 1.2), frameon=False)
axis.set_axis_off()
plt.show()
