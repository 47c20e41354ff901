"""What both programs share: settings, logs, and a thin connection to the API server. No rule of Reprieve is here."""
