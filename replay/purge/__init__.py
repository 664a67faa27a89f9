"""Purges: sent to the log, carried out in Postgres, checked, with a receipt of what remains."""
