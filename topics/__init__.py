"""What flows: topic catalogue, schemas and golden examples, topic creation, the log epoch."""
