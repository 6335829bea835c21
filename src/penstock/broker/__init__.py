"""One broker: `wiring` makes its parts, `process` runs it, `readings` says what a scrape sees."""
