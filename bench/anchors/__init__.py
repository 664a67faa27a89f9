"""What Headstart is measured against: Kafka Streams, plain Faust, Quix Streams."""
