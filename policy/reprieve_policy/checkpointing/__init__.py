"""How a workload is asked to checkpoint: its plan, the contract of messages, the agent."""
