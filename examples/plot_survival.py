"""
How do I predict survival well for all, without knowing the groups?
===================================================================

The mean loss of a survival model may hide patients who are predicted badly. Hu and Chen (2022) minimise the mean of
the worst share of the losses instead, which needs no groups. That is a ranked range with m = 0. With m > 0 the
unpredictable records are left out. Only `AoRRLoss` on the losses of patients is needed.
"""

import os

import matplotlib.pyplot as plt
import numpy as np
import torch

import rankrange.torch as rrt

STEPS = 50 if "RANKRANGE_SMALL" in os.environ else 600

# %%
# Patients of a small group follow another rule, and the model does not know who is in it. Times are censored at 1.
rng = np.random.default_rng(0)
n = 3000
X = rng.normal(size=(n, 4))
small = rng.random(n) < 0.2
risk = np.where(small, X @ [0.2, 1.0, 0.0, 0.0], X @ [1.0, 0.2, 0.0, 0.0])
time = rng.exponential(np.exp(-risk))
seen, time = time < 1.0, np.minimum(time, 1.0)
broken = rng.choice(1500, 90, replace=False)  # 6% of the training records are broken
time[broken], seen[broken] = time[rng.permutation(broken)], seen[rng.permutation(broken)]
X[broken] *= 6
rows, T, D = (torch.tensor(a, dtype=torch.float32) for a in (X, time, seen))


# %%
# The negative log likelihood of one patient under an exponential model with rate exp(score).
def patient_losses(score: torch.Tensor, part: slice) -> torch.Tensor:
    return torch.exp(score) * T[part] - D[part] * score


def fitted(criterion: torch.nn.Module) -> torch.nn.Module:
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 1)
    optimiser = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(STEPS):
        optimiser.zero_grad()
        criterion(patient_losses(model(rows[:1500])[:, 0], slice(0, 1500))).backward()
        optimiser.step()
    return model


criteria = {
    "mean": rrt.AoRRLoss(),
    "worst 80%": rrt.AoRRLoss(m=0.0, k=0.8),
    "all but the\nworst 7%": rrt.AoRRLoss(m=0.07, k=1.0),
    "ranks from\n7 to 80%": rrt.AoRRLoss(m=0.07, k=0.8),
}
test, results = slice(1500, None), {}
for name, criterion in criteria.items():
    found = patient_losses(fitted(criterion)(rows[test])[:, 0], test).detach().numpy()
    results[name] = [found[small[1500:] == member].mean() for member in (False, True)]
    print(f"{' '.join(name.split()):<22} large group {results[name][0]:.3f}   small group {results[name][1]:.3f}")

# %%
# The mean of the worst share follows the corrupted records, and all patients are predicted worse. Trimming alone fits
# the large group and neglects the small one. The ranked range drops the records with the largest losses and the
# easiest patients.
figure, axis = plt.subplots(figsize=(6.5, 4), layout="constrained")
places = np.arange(len(results))
for shift, label, color in ((-0.2, "large group", "0.6"), (0.2, "small group", "#3b74c4")):
    axis.bar(places + shift, [r[int(shift > 0)] for r in results.values()], 0.38, color=color, label=label)
axis.set_xticks(places, list(results))
axis.set(ylabel="mean negative log likelihood of test patients")
axis.legend()
plt.show()
