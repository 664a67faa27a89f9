"""What flows: the topic catalogue, schemas and golden examples, topic creation and the log epoch."""
