"""The one typed place for settings: flags, environment, the running local stack, defaults."""
