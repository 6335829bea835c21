"""Quotas of clients: rates over windows, and how long to throttle."""
