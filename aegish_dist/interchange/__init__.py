"""Files of other tools, read and written: verdicts, logs of Inspect AI."""
