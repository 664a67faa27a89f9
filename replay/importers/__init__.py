"""Converts histories of other tools to agent runs, one module per tool; counts what is left out.

A run is the form that the demo and `headstart backtest --source FILE` read: source, domain,
agent_model, task_id, trial, started_at, steps of tool, called_at, returned_at and error; times are
Unix ms, or null.
"""
