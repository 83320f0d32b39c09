"""Calling a model: one prepared client per run and model, three wire formats, one transport.

Codecs (`openai`, `anthropic`, `google`) are pure; `http` moves the bytes; `failures` reads what
went wrong; `retry` decides what follows. Nothing here waits, retries or writes a verdict.
"""
