"""The container's inside: inputs in, models verified without the token, the verdict published."""
