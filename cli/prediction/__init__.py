"""Commands for predictors of tool calls."""
