"""What tests share: builders of objects, fakes that fail if asked, the handle of a real cluster."""
