"""The CA and serving certificates of the webhooks: issue, renew, inject, reload."""
