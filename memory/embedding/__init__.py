"""Turns texts into vectors; every vector belongs to one model and is compared within it only."""
