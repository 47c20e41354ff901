"""Reprieve's own CA and the serving certificate of its webhooks.

Pure functions of `now` decide what to issue (`issue`, `bundle`, `renewal`). The other modules do
the I/O: the Secret (`store`), the webhook configurations (`inject`), the TLS context (`serving`)
and the loop (`rotator`).
"""
