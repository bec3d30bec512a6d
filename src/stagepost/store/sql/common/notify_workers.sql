select :queue_names
