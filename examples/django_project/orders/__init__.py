"""An app that sells books and sends receipts."""
