"""Batches: `keeper` plans and takes them, `steps` moves them, `budget` caps their cost."""
