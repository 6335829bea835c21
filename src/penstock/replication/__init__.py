"""Requests between brokers; follower fetchers and ISR proposals come to stand here."""
