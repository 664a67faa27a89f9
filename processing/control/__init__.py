"""State that control records change: learner assignments, defaults, rebuilds, resets."""
