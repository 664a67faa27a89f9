"""Commands that replay the log: backtest, tune, experiment, replay, rebuild, verify."""
