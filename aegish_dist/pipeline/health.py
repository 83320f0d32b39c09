"""Whether answers can be stored, as the parts of one worker process have seen it last."""

import asyncio


class Health:
    """Good until a part reports trouble, and again once each of those reports that it works."""

    def __init__(self) -> None:
        """Begin in good health."""
        self._failing: set[object] = set()
        self._good = asyncio.Event()
        self._good.set()

    @property
    def good(self) -> bool:
        """Whether no part fails; may be read from any thread."""
        return not self._failing

    def fails(self, part: object) -> None:
        """Note that a part fails."""
        self._failing.add(part)
        self._good.clear()

    def works(self, part: object) -> None:
        """Note that a part works."""
        if part in self._failing:
            self._failing.discard(part)
            if not self._failing:
                self._good.set()

    async def recovered(self) -> None:
        """Wait until no part fails."""
        await self._good.wait()
