"""What each process may do with Kafka, Redis and Postgres, and ACLs made of that."""
