"""Drive one claimed run on durable evidence."""
