"""Runs functions of one part of the limiter's script in Redis, without the others around it."""

import json
from typing import Any

import msgspec
import redis

from aegish_dist.ratelimit.policy import POLICY
from aegish_dist.ratelimit.shared_limiter import script

_FRAME = """{parts}
local policy, v = cjson.decode(ARGV[1]), cjson.decode(ARGV[2])
local function body()
  {body}
end
return cjson.encode(body())
"""


class LuaPart:
    """Some parts of the script, on a Redis, real or fake."""

    def __init__(self, client: redis.Redis, *parts: str) -> None:
        self._client = client
        self._parts = script(*parts)

    def run(self, body: str, **values: object) -> Any:
        """Run Lua statements after the parts, and return what they return.

        Args:
            body: Statements that end with `return` and a table; `v` holds the values, `policy` the
                `Policy`.
        """
        text = _FRAME.format(parts=self._parts, body=body)
        reply = self._client.eval(text, 0, msgspec.json.encode(POLICY), json.dumps(values))
        return json.loads(reply)
