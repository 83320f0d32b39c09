"""A fake LLM provider on the loopback interface, speaking three wire formats.

It stands where the providers stand in the pipeline, so that demos, tests, benchmarks and drills run
the real client against real sockets without a key. It knows the formats from the outside: nothing
here may import the provider clients it is meant to test. `running` is the way in.
"""
