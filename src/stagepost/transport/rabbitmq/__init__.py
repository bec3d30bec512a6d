"""RabbitMQ: brings the ids of jobs to workers, requests to foreign programs and their answers back."""
