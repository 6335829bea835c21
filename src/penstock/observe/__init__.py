"""Logs, metrics and health pages for operators."""
