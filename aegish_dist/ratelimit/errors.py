"""Why an item goes back to its queue uncalled."""


class GivenBackError(Exception):
    """Raised for an item that has to go back to its queue."""


class UnservedError(GivenBackError):
    """Raised for an item whose model this worker cannot call, though another may."""


class SentBackError(GivenBackError):
    """Raised for an item whose model is parked, or takes far fewer than wait here."""


class ShuttingDownError(GivenBackError):
    """Raised for an item that was not called yet when its worker began to stop."""


class GateError(GivenBackError):
    """Raised for an item that waited when a bug stopped the pump of its gate."""


class PassedOnError(GivenBackError):
    """Raised for an item whose message the broker gave to others when its connection was lost."""
