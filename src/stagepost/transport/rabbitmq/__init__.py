"""RabbitMQ: delivers job ids to workers, requests to external programs, and their answers."""
