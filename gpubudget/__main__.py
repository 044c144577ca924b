"""``python -m gpubudget`` is the command ``gpubudget``; here both begin."""

from __future__ import annotations

import sys

_INTERRUPTED = 130


def main() -> None:
    """Run the command line; Ctrl-C while it is still being imported ends it as silently as later."""
    try:
        from gpubudget.cli.main import main as run  # noqa: PLC0415 - inside, so that Ctrl-C is noticed

        run()
    except KeyboardInterrupt:
        sys.exit(_INTERRUPTED)


if __name__ == "__main__":
    main()
