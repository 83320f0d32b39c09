"""Files of other tools, read and written: verdicts, Inspect AI, Every Eval Ever, Croissant."""
