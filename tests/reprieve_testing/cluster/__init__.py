"""What starts a real cluster and acts in it: the handle, users, pods, manifests for one test."""
