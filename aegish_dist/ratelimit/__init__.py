"""The rate limiter: how many calls to each model may begin, over all workers."""
