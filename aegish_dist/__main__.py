"""`python -m aegish_dist` is `aegish-dist`."""

from aegish_dist.cli import main

main()
