"""Old names of public attributes and parameters work for one release, with a warning."""

import pytest

from rankrange import find_label_issues, noise

PROBABILITIES = [[0.9, 0.1], [0.4, 0.6], [0.2, 0.8], [0.1, 0.9]]


def test_old_names_of_label_issues():
    issues = find_label_issues(y=[0, 0, 1, 1], pred_probs=PROBABILITIES)
    with pytest.warns(FutureWarning, match="members"):
        assert issues.opinions is issues.members
    with pytest.warns(FutureWarning, match="high_leverage"):
        assert issues.far is issues.high_leverage


def test_old_names_of_an_audit():
    pytest.importorskip("pyarrow")
    from rankrange.audit import audit_table

    stages = []
    table = {"x": [i % 7 + i // 20 * 9 for i in range(40)], "kind": ["a"] * 20 + ["b"] * 20}
    with pytest.warns(FutureWarning, match="progress"):
        audit = audit_table(table, "kind", models="linear", tell=stages.append)
    assert stages
    with pytest.warns(FutureWarning, match="result"):
        assert audit.judgement is audit.result


def test_flips_of_asymmetric_noise_are_called_mapping():
    with pytest.warns(FutureWarning, match="mapping"):
        changed = noise.asymmetric([0, 0, 1, 1], flips={0: 1}, rate=1.0)
    assert changed.tolist() == [1, 1, 1, 1]


def test_a_checkpoint_with_the_old_name_of_the_noise_model_is_loaded():
    torch = pytest.importorskip("torch")
    import rankrange.torch as rrt

    def a_loss():
        return rrt.AoRRLoss(torch.nn.CrossEntropyLoss(reduction="none"), m="auto", n_samples=4)

    loss, target, index = a_loss(), torch.tensor([0, 1, 0, 1]), torch.arange(4)
    loss(torch.tensor([[2.0, 0.0]] * 4), target, index)
    state = loss.state_dict()
    old = {name.replace("noise_model", "judge"): buffer for name, buffer in state.items()}
    assert old.keys() != state.keys()
    other = a_loss()
    other.load_state_dict(old)
    torch.testing.assert_close(other.shares, loss.shares)
