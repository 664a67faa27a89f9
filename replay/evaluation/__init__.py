"""Evaluates predictors of calls on recorded runs: how often right, how sure, what it saves."""
