"""Where predictions are read from: the broker, the archive, exports, files."""
