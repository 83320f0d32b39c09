"""The use cases, one verb each; they own the transactions."""
