"""A fake LLM provider on the loopback interface, which speaks every wire format.

It stands where the providers stand in the pipeline, so that demos, tests, benchmarks and drills run
the real client against real sockets without a key. Its dialects are written from the vendors'
documents: nothing here may import the clients that it tests. `running` starts it.
"""
