"""The coordinator runtime: what groups and transactions share. It loads, appends, applies and responds."""
