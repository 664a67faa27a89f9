"""The read side of the episodic memory: episodes, retrieval, cases, ranking and evaluation."""
