"""What an `AgentRun` is made of: its predictor, guarded, and the events of the run."""
