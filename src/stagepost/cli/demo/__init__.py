"""`stagepost demo`: thousands of jobs, a worker killed in the middle, and an audit of the result."""
