"""A CA of Reprieve's own and the serving certificate of its webhooks: issued, rotated, injected, reloaded.

What is due is decided by pure functions of `now` (`issue`, `bundle`, `renewal`); the Secret, the webhook configurations
and the TLS context are the shell around them (`store`, `inject`, `serving`, `rotator`, `files`).
"""
