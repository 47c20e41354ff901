"""`make bench-cel`: what the overlay `cel` costs the API server, beside policies by hand."""
