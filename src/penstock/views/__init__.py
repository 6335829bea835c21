"""Filtered views: the language of their filters, and what a fetch of a view sends."""
