"""Simple predictors, which others are compared with, and which need no tuning."""
