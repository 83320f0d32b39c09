"""The store: PostgreSQL, and nothing but PostgreSQL, is the truth.

Query functions take a session first, never commit, and return records of the core. Transactions
belong to the pipeline.
"""
