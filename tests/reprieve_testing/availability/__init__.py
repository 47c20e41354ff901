"""What tests of availability share: replicas behind their Service, and a stream of requests."""
