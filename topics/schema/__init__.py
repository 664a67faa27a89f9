"""Schemas of the topics, as structs and as JSON Schema, with golden examples."""
