"""GitHub's REST API: the run's context, one sticky comment, artifacts, pull requests, contents."""
