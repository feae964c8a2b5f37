"""Reports: plain data and its renderings; nothing here imports torch."""
