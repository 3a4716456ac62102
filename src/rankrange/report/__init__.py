"""HTML pages from results: one self-contained file each, no network, nothing from the data ever executes."""
