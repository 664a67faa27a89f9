"""Commands of the episodic memory."""
