"""Labels as indices padded with -1 are the labels of the mask, for losses and gradients."""

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import rankrange.torch as rrt  # noqa: E402


@pytest.mark.parametrize("two_sided", [True, False])
@pytest.mark.parametrize("top_k", [1, 3])
@pytest.mark.parametrize("dtype", [torch.int64, torch.int32])
def test_padded_indices_are_the_labels_of_the_mask(top_k, two_sided, dtype):
    generator = torch.Generator().manual_seed(0)
    mask = torch.rand(40, 6, generator=generator) < 0.4
    mask[0], mask[1, 1:], mask[2] = False, False, True  # no label, the first alone or none, all
    width = int(mask.sum(1).max()) + 1  # one place of padding at least
    index = torch.full((40, width + 1), -1, dtype=dtype)
    for row, labels in enumerate(mask):
        true = labels.nonzero()[:, 0]
        places = torch.randperm(width + 1, generator=generator)[: len(true)]
        index[row, places] = true.to(dtype)
    found = []
    for target in (mask, index):
        scores = torch.randn(40, 6, generator=torch.Generator().manual_seed(1)).requires_grad_()
        losses = rrt.tkml(scores, target, top_k, two_sided=two_sided, reduction="none")
        losses.sum().backward()
        found.append((losses.detach(), scores.grad))
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0)


@pytest.mark.parametrize("wrong", [6, 7, -2])
def test_an_index_outside_of_the_labels_is_an_error(wrong):
    scores = torch.randn(3, 6, generator=torch.Generator().manual_seed(0))
    target = torch.tensor([[0, -1], [2, wrong], [5, -1]])
    with pytest.raises(ValueError, match="count labels from 0"):
        rrt.tkml(scores, target, 2)
    # In a transform no value can be read, so the row is NaN; the others are what they were.
    _, losses = torch.func.grad_and_value(lambda z: rrt.tkml(z, target, 2, reduction="none")[1])(scores)
    assert losses.isnan()
