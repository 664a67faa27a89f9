"""Predictions with their outcomes, gains and costs, and the policies that judge them."""
