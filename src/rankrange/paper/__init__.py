"""The paper's experiments, through the public API: `rankrange reproduce` runs them (docs/results has what came out)."""
