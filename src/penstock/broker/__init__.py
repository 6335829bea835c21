"""One broker: `wiring` makes its parts, `process` runs it, `readings` has the metrics of its parts."""
