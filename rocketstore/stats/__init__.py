"""What uses the log and is not part of it; one module or folder each."""
