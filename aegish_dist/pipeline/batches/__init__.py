"""The life of batches, one module per step.

    plan       missing items of a model     -> planned
    hand_over  planned -> creating          -> in_progress
    find       creating, answer lost        -> in_progress, or planned again
    follow     in_progress                  -> collecting
    collect    collecting, results          -> verdicts, ended; the rest is free to be asked again

`advance` has the step of a batch's state made by the worker that has it. Between two commits a
worker may be killed at any line: every step can be made again, and none pays twice. Decisions are
in `core.batch_rules` and `core.batch_results`. `docs/batches.md` says what happens in each fault.
"""
