"""A provider of batches for the tests: the product's simulator, which sells batches as well.

It speaks OpenAI's and Anthropic's format, written from the vendors' documents: nothing here may
import the clients that it tests. It has no faults: those are scripted in `tests.batch_clients`.
`python -m tests.batch_server --help` starts it as a process; `server.BatchSimulator` is what runs
in a thread.
"""
