"""The functions that users call: open, scan and ship."""
