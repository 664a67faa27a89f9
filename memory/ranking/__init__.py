"""Ranks cases by what helped: similarity, a learned Q-function, votes and abstention. Pure."""
