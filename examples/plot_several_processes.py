"""
Does trimming still work when I train on several processes?
===========================================================

It does if the ranks are taken over all processes. If each process drops the worst fifth of its own batch, a process
that was given clean rows drops good ones, and a process with many wrong labels keeps bad ones. ``group=`` ranks all of
them together.
"""

import matplotlib.pyplot as plt
import numpy as np
import torch
import torch.distributed as dist

import rankrange.torch as rrt
from rankrange import range_weights

torch.manual_seed(1)
n_processes, batch = 4, 40
share_wrong = [0.0, 0.1, 0.2, 0.5]  # wrong labels come in bunches: by hospital, by annotator, by day
losses = [torch.rand(batch) * 0.8 for _ in range(n_processes)]
wrong = [torch.zeros(batch, dtype=torch.bool) for _ in range(n_processes)]
for loss, mask, share in zip(losses, wrong, share_wrong, strict=True):
    mask[: int(share * batch)] = True
    loss[mask] = 1.2 + torch.rand(int(mask.sum())) * 1.5
m = 0.2

# %%
# Ranked separately, every process drops eight of its forty samples. Ranked together, 32 of 160 are dropped, in
# whichever process they are.
alone = [range_weights(loss.numpy(), m, 1.0) for loss in losses]
together = np.split(range_weights(torch.cat(losses).numpy(), m, 1.0), n_processes)

# %%
# In a training script this is one argument. Here a group of one process replaces a real one. Processes exchange
# counts, never the losses themselves.
if dist.is_available() and not dist.is_initialized():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    criterion = rrt.AoRRLoss(m=m, group=dist.group.WORLD)
    print("over the group:", round(criterion(torch.cat(losses)).item(), 4))
    print("by definition: ", round(float(torch.cat(losses).sort().values[:128].mean()), 4))
    dist.destroy_process_group()

figure, axes = plt.subplots(2, 4, figsize=(11, 5), layout="constrained", sharex=True, sharey=True)
for row, (name, weights) in enumerate({"each process alone": alone, "one ranking for all": together}.items()):
    for process, axis in enumerate(axes[row]):
        loss, mask, dropped = losses[process].numpy(), wrong[process].numpy(), weights[process] == 0
        place = np.argsort(np.argsort(-loss))
        good_lost, bad_kept = int((dropped & ~mask).sum()), int((~dropped & mask).sum())
        colours = np.where(mask, np.where(dropped, "#f6d2b8", "#d95f02"), np.where(dropped, "#cfdcef", "#3b74c4"))
        axis.bar(place, loss, color=colours, width=0.9)
        axis.set_title(f"good lost: {good_lost}, bad kept: {bad_kept}", fontsize=10)
        if row:
            axis.set_xlabel(f"process {process}, ranks")
    axes[row, 0].set_ylabel(f"{name}\nloss")
figure.suptitle("Orange: wrong labels. Pale: dropped from the loss.")
for axis in axes.flat:
    axis.spines[["top", "right"]].set_visible(False)
plt.show()
