"""The worker that makes episodic events of spans from an OpenTelemetry Collector's topic."""
