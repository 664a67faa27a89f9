"""docker-compose.yml in real containers: `make test-compose`."""
