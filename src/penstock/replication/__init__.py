"""Follower fetchers, ISR proposals, and requests to other brokers and to the controller."""
