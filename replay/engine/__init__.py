"""The backtest engine: predictions in their order go in, sums per policy come out."""
