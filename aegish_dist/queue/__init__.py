"""The queue: Celery messages that carry identifiers and nothing else.

The broker is disposable. What it loses is found missing in the store and enqueued again.
"""
