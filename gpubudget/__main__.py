"""``python -m gpubudget`` is the command ``gpubudget``."""

from gpubudget.cli.main import main

if __name__ == "__main__":
    main()
