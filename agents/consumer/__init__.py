"""Fetches batches and hands them to partitions in order: one Faust message per fetch.

It uses private names of aiokafka 0.14.0 and Faust 0.15.3, which are therefore pinned; tests/agents
holds it equal to the stock path. Changelogs are read by `agents/thresholds/recovery.py`, not Faust.
"""
