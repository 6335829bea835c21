"""The signals that stop a broker, or a process that runs several."""

import signal


def stop_signals() -> tuple[signal.Signals, ...]:
    """Signals that stop the process cleanly: also SIGHUP of a closing terminal, unless nohup made it ignored."""
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        return signal.SIGTERM, signal.SIGINT
    return signal.SIGTERM, signal.SIGINT, signal.SIGHUP
