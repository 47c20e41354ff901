"""A review, from decoding to response. No HTTP here."""
