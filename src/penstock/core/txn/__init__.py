"""Transactions: who may write under a transactional id, what its transaction covers, and how it ends."""
