"""One file for each format, which shows what ``story`` says and decides nothing."""
