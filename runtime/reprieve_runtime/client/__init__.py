"""A thin connection to the API server: requests, errors, credentials, watches."""
