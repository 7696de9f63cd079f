"""One file an experiment: what a cell of a grid computes, by every method."""
