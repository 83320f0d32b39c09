"""The batch interfaces of the simulated provider, one module per wire format.

`service` takes the requests and `call_faults` lets them fail, `lifecycle` answers a batch over
time, `results` says which lines its results have. Answers are those of the same simulated models
that answer live.
"""
