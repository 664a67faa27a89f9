"""Rows of the table, and the state that is kept in them beside contexts."""
