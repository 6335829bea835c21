"""The coordinator runtime shared by groups and transactions: it loads, appends, applies and responds."""
