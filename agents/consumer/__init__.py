"""One Faust message per fetch and partition, instead of one per record.

Leans on private names of aiokafka 0.14.0 and Faust 0.15.3; tests/agents holds it equal to the
stock path. Changelogs are read by `agents/thresholds/recovery.py`, never through Faust.
"""
