"""Worker processes: `celery -A workers.app worker`.

One event loop per process holds hundreds of provider calls; Celery fetches and acknowledges, and a
message is acknowledged only after its verdict is committed.
"""
