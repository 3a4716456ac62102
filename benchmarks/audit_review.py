"""The example of docs/how-to/review.md: a real table from file to fixed file, with planted errors to compare with.

    python benchmarks/audit_review.py FOLDER

writes tumours.csv (569 tumours of scikit-learn's breast cancer data, 28 diagnoses exchanged at random), audits it,
decides the suspects as somebody would who has the right diagnoses, applies the decisions and audits again. The report
is the one in the pictures of the guide.
"""

import csv
import sys
from pathlib import Path

import numpy as np
from sklearn.datasets import load_breast_cancer

from rankrange.audit import audit_file
from rankrange.audit.applying import changes_of, fixed_contents
from rankrange.noise import symmetric
from rankrange.tables.read import open_table
from rankrange.tables.write import write_whole


def write_table(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Write the table, and return the right diagnoses and which of the written ones are wrong."""
    data = load_breast_cancer()
    truth = data.target_names[data.target]
    given = symmetric(truth, 0.05, random_state=0)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow([*data.feature_names, "diagnosis"])
        for row, label in zip(data.data, given, strict=True):
            writer.writerow([*(f"{value:g}" for value in row), label])
    return truth, given != truth


def main(folder: Path) -> None:
    """Run the example."""
    table, report, decisions, fixed = (folder / n for n in ("tumours.csv", "report.html", "decisions.csv", "fixed.csv"))
    truth, planted = write_table(table)
    audit = audit_file(table, "diagnosis")
    report.write_text(audit.report(), encoding="utf-8")
    print(audit)
    for suspect in audit.suspects(30):
        wrong = bool(planted[suspect.row - 1])
        audit.decide(suspect.row, "relabel" if wrong else "keep", truth[suspect.row - 1] if wrong else None)
    audit.save_decisions(decisions)
    changes = changes_of(audit.decisions, open_table(table))
    write_whole({fixed: fixed_contents(open_table(table), changes, fixed)})
    print(changes.in_words())
    with fixed.open(newline="", encoding="utf-8") as file:
        left = sum(row["diagnosis"] != right for row, right in zip(csv.DictReader(file), truth, strict=True))
    print(f"{int(planted.sum())} diagnoses were wrong, {left} still are")
    again = audit_file(fixed, "diagnosis", decisions=decisions)
    (folder / "next.html").write_text(again.report(), encoding="utf-8")
    print("\n".join([*again.sentences(), *again.review_in_words()]))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
