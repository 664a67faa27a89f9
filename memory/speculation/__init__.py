"""Past runs as a second input of the confidence of guesses, while agents run."""
