"""The tournament: methods at equal gradients by the rules of docs/comparison.md."""
