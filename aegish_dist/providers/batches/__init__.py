"""The batch interfaces of providers, one module per wire format."""
