"""The process of the command `hornbook`, also as `python -m hornbook`."""

from hornbook.lifecycle import stopping


def main() -> None:
    """Runs a command. Signals are answered from here on, before anything else is imported."""
    stopping.install()
    try:
        from hornbook.cli import main as run

        run()
    except KeyboardInterrupt:
        stopping.end_at_once()
    finally:
        stopping.finish()


if __name__ == "__main__":
    main()
