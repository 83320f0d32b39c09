"""How facts may be seen: rules, policies, targets, overlays, and how answers are read. Pure."""
