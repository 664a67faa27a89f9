"""What ranking needs of a past run, its calls as sequences, and clusters of alike runs. Pure."""
