"""The model catalog: who can be asked, where, with which key, and at what price."""
