"""What other tools read and write: verdicts, logs of Inspect AI, Every Eval Ever, Croissant."""
