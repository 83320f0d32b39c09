"""The broker: Celery messages that carry identifiers and nothing else.

Its content is disposable. Items that it loses are found missing in the store and enqueued again.
"""
