"""The schemas of what flows, as structs and as JSON Schema, with golden examples."""
