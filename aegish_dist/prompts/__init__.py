"""Prompts: the text sent to every model of a run, bundled or from a user's file.

The texts are data files beside this module. Nothing here knows a model, a queue or a database.
"""
