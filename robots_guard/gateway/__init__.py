"""The gateway: what every proxying integration needs, without a framework."""
