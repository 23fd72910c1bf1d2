"""What a program that serves others needs, whatever it serves: workers, listeners, metrics."""
