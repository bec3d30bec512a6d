"""The only app of the project: it takes orders and sends receipts."""
