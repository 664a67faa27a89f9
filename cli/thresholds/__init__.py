"""Commands about what was learned: thresholds, contexts, learner, notices."""
