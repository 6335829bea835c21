"""python -m penstock.broker"""

import signal


def run() -> int:
    # Until the broker has a handler of its own, Ctrl-C ends the process at once and without a traceback.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    from penstock.broker.process import main

    return main()


raise SystemExit(run())
