"""A provider of batches for the tests: the product's simulator, which sells batches as well.

It speaks the three wire formats that have batches, written from the vendors' documents: nothing
here may import the clients that it tests. `python -m tests.batch_server --help` starts it as a
process; `server.BatchSimulator` is what runs in a thread.
"""
