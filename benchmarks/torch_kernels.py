"""Time the kernels of rankrange.torch on a GPU against eager PyTorch: forward and backward, medians, one table.

    python benchmarks/torch_kernels.py [--record] [--quick]

Every line compares one loss, forward and backward, with the best of sort, topk and kthvalue in eager PyTorch, on the
same data, in turns. It is timed twice, between CUDA events around each call:
  loop   called from Python, one call after the other: what a training loop waits for, Python and launches included
  graph  replayed from a CUDA graph: what the GPU alone takes
"reads" is the time over that of one read of the losses, "floors" over that of one read of scores and target and one
write of the gradient (both timed here). The last line is the loop time of the plain mean, forward and backward: what
any loss takes that is called from Python.
"""

from __future__ import annotations

import argparse
import statistics

import torch

import rankrange.torch as rrt
import record

SIZES = [1 << 10, 1 << 14, 1 << 16, 1 << 18, 1 << 20, 1 << 22, 1 << 24, 1 << 26]
SHAPES = [(4096, 1000), (1024, 32000), (512, 131072), (256, 1000000)]
TOP_K = 5
GOALS = {1 << 10: 2, 1 << 14: 2, 1 << 20: 3, 1 << 24: 10, 1 << 26: 10}
LABEL_GOALS = {(4096, 1000): 3, (1024, 32000): 6, (512, 131072): 6, (256, 1000000): 6}


# --- eager references: ties are not shared, NaN is not reported, only the loss is computed


def range_by_sort(losses, m, k):
    return losses.sort(descending=True).values[m:k].mean()


def range_by_topk(losses, m, k):
    return losses.topk(k).values[m:].mean()


def range_by_kthvalue(losses, m, k):
    n = len(losses)
    values = losses.detach()
    lam, lam_hat = values.kthvalue(n - k + 1).values, values.kthvalue(n - m + 1).values
    return torch.where((values >= lam) & (values < lam_hat), losses, 0.0).sum() / (k - m)


def labels_by(largest):
    """TKML with `largest(scores, k)` giving the k-th largest score of each row."""

    def loss(scores, mask, k):
        exceeds_k = mask.sum(1) > k
        rise = torch.where(exceeds_k, scores.masked_fill(mask, -torch.inf).amax(1), largest(scores, k + 1))
        true = scores.masked_fill(~mask, -torch.inf)
        fall = torch.where(exceeds_k, largest(true, k), scores.masked_fill(~mask, torch.inf).amin(1))
        return torch.relu(1 + rise - fall).mean()

    return loss


RANGE_REFERENCES = {"sort": range_by_sort, "topk": range_by_topk, "kthvalue": range_by_kthvalue}
LABEL_REFERENCES = {
    "sort": labels_by(lambda scores, k: scores.sort(1, descending=True).values[:, k - 1]),
    "topk": labels_by(lambda scores, k: scores.topk(k, 1).values[:, -1]),
    "kthvalue": labels_by(lambda scores, k: scores.kthvalue(scores.shape[1] - k + 1, 1).values),
}


# --- timing


def medians(calls, seconds=0.3, at_most=300, rounds=5):
    """Median milliseconds of each call, between events, called again and again; several rounds of all contenders."""
    times = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            once = min(event_times(call, 3))
            count = int(min(max(1000 * seconds / once, 10), at_most)) // rounds
            event_times(call, count // 3 + 1)
            times[name] += event_times(call, count)
    return {name: statistics.median(found) for name, found in times.items()}


def event_times(call, count):
    pairs = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(count)]
    for start, end in pairs:
        start.record()
        call()
        end.record()
    torch.cuda.synchronize()
    return [start.elapsed_time(end) for start, end in pairs]


def both_ways(loss, leaf, *rest):
    """A call that runs `loss` forward and backward, the gradient written anew."""

    def call():
        leaf.grad = None
        loss(leaf, *rest).backward()

    return call


def replayed(call):
    """The same from a CUDA graph."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            call()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return graph.replay


def compare(loss, size, ours, references, floor, goal):
    """One line of the table. `floor` is a call as well."""
    calls = {"ours": ours, **references, "floor": floor}
    loop = medians(calls)
    graph = medians({name: replayed(call) for name, call in calls.items()})
    torch.cuda.empty_cache()
    line = {"loss": loss, "size": size, "goal": goal}
    for how, times in (("loop", loop), ("graph", graph)):
        best = min(references, key=times.get)
        line |= {f"{how}_{name}_ms": time for name, time in times.items()}
        line |= {f"{how}_best": best, f"{how}_best_ms": times[best], f"{how}_speedup": times[best] / times["ours"]}
        line[f"{how}_floors"] = times["ours"] / graph["floor"]
    return line


def time_losses(n):
    losses = torch.rand(n, device="cuda").clamp(min=1e-9).log().neg().requires_grad_()
    m, k = n // 10, n - n // 10
    # kthvalue takes seconds beyond a million losses.
    references = {
        name: both_ways(loss, losses, m, k)
        for name, loss in RANGE_REFERENCES.items()
        if name != "kthvalue" or n <= 1 << 20
    }
    values = losses.detach()
    ours = both_ways(rrt.ranked_range, losses, m, k)
    return compare("ranked_range", f"{n}", ours, references, lambda: values.amax(), GOALS.get(n))


def time_labels(shape):
    scores = torch.randn(shape, device="cuda", requires_grad=True)
    mask = torch.rand(shape, device="cuda") < 5 / shape[1]
    references = {name: both_ways(loss, scores, mask, TOP_K) for name, loss in LABEL_REFERENCES.items()}
    values, target, out = scores.detach(), mask.view(torch.uint8), torch.empty(shape, device="cuda")

    def floor():
        torch.add(values, target, out=out)

    ours = both_ways(rrt.tkml, scores, mask, TOP_K)
    return compare("tkml", "x".join(map(str, shape)), ours, references, floor, LABEL_GOALS.get(shape))


def time_mean(n):
    losses = torch.rand(n, device="cuda", requires_grad=True)
    return medians({"mean": both_ways(torch.mean, losses)})["mean"]


def print_table(lines):
    print("| loss | size | goal | loop: eager | ours | times faster | graph: eager | ours | times faster | floors |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for line in lines:
        cells = [line["loss"], line["size"], line["goal"] or ""]
        for how in ("loop", "graph"):
            cells += [f"{line[f'{how}_best_ms']:.3f} {line[f'{how}_best']}", f"{line[f'{how}_ours_ms']:.3f}"]
            cells += [f"{line[f'{how}_speedup']:.1f}"]
        cells += [f"{line['loop_floors']:.1f}, {line['graph_floors']:.1f} x {line['graph_floor_ms']:.4f}"]
        print("| " + " | ".join(map(str, cells)) + " |")


def rows_of(lines):
    """One row a line of the table and a way of timing, for benchmarks/results/torch_kernels.csv."""
    import triton

    names = ["ours", "sort", "topk", "kthvalue", "floor"]
    for line in lines:
        for how in ("loop", "graph"):
            times = {f"{name}_ms": f"{line.get(f'{how}_{name}_ms', float('nan')):.5g}" for name in names}
            versions = {"torch": torch.__version__, "triton": triton.__version__}
            yield {**versions, "loss": line["loss"], "size": line["size"], "timed": how, **times}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--record", action="store_true", help="append the times to benchmarks/results")
    parser.add_argument("--quick", action="store_true", help="three sizes and two shapes")
    given = parser.parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("this benchmark needs a CUDA GPU; none was found")
    torch.manual_seed(0)
    device = torch.cuda.get_device_name()
    print(", ".join(f"{key} {value}" for key, value in record.circumstances(device).items()), flush=True)
    sizes, shapes = (SIZES[:5:2], SHAPES[:2]) if given.quick else (SIZES, SHAPES)
    lines = [time_losses(n) for n in sizes] + [time_labels(shape) for shape in shapes]
    print_table(lines)
    print("plain mean in the loop: " + ", ".join(f"{n}: {time_mean(n):.3f} ms" for n in sizes))
    if given.record:
        record.append("torch_kernels", list(rows_of(lines)), device)


if __name__ == "__main__":
    main()
