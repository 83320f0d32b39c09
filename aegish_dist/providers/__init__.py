"""Calling a model: one prepared client for each run and model, a codec for each wire format.

`session` prepares clients, `http` moves the bytes, a codec (`openai`, `anthropic`, `google`) reads
the answer, `failures` classifies errors. Nothing here waits, retries or writes a verdict.
"""
