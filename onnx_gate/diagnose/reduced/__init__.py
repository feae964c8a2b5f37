"""Files that compute in fewer bits than their model: what each layer costs."""
