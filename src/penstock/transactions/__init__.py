"""Transactions: rules of transactional ids, record formats, and the coordinator that writes markers."""
