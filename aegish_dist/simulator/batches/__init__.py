"""The batch interfaces of the simulated provider, one module per wire format.

`service` takes the requests and `lifecycle` answers a batch over time. The answers are those of the
same simulated models that answer live.
"""
